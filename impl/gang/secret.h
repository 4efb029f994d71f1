// Where the 32 bytes come from that prove a process belongs to a gang: an inherited descriptor, a file, or,
// on one host, a file that the ranks of one user make among themselves. Thread rule: any thread.
#pragma once

#include <string>

#include "base/deadline.h"
#include "gang/tcp_store.h"

namespace gangway {

// An inherited descriptor (a memfd, a file, or a pipe): 32 bytes from its beginning. Read once and kept for
// the life of the process; from then on the descriptor is close-on-exec. IO or INVALID_ARGUMENT that name
// GANGWAY_SECRET_FD.
Secret secret_from_descriptor(int fd);

// A regular file of this user's, of mode 0600 or less, with exactly 32 bytes; else INVALID_ARGUMENT that
// names GANGWAY_SECRET_FILE.
Secret secret_from_file(const std::string& path);

// The folder for secrets that ranks make themselves: $XDG_RUNTIME_DIR/gangway, else /tmp/gangway-<uid>. Made
// with mode 0700; a folder of another user, or one that others may enter, is refused.
std::string secret_folder();

// The secret of `job` in `folder`: the first rank makes it, the others read it. Every process holds a lock on
// the file for as long as it lives; a file that nobody holds is stale and gets a new secret. The last one to
// leave removes it.
Secret shared_secret(const std::string& folder, const std::string& job, Deadline deadline);

}  // namespace gangway
