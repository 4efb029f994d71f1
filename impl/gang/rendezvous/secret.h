// Where the 32 bytes come from that prove a process belongs to a gang: an inherited descriptor, a file, or,
// on one host, a file that the ranks of one user make among themselves. Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

// An inherited descriptor (a memfd, a file, or a pipe): 32 bytes from its beginning. Read once and kept for
// the life of the process; from then on the descriptor is close-on-exec. IO or INVALID_ARGUMENT that name
// GANGWAY_SECRET_FD.
Secret secret_from_descriptor(int fd);

// A regular file of this user's, of mode 0600 or less, with exactly 32 bytes; else INVALID_ARGUMENT that
// names GANGWAY_SECRET_FILE.
Secret secret_from_file(const std::string& path);

// The folder for secrets that ranks make themselves: the first of secret_folders() that is this user's, made with mode
// 0700 if it is absent. INVALID_ARGUMENT: none can be used, and why; others may enter this user's.
std::string secret_folder();
// gangway in $XDG_RUNTIME_DIR or /run/user/<uid>, then gangway-<uid> in /tmp, /var/tmp and /dev/shm: another user may have
// taken one of those names beforehand.
std::vector<std::string> secret_folders();
std::string usable_folder(const std::vector<std::string>& folders);

// The secret of `job` in `folder`: the first rank makes it, the others read it. Every process holds a lock on
// the file for as long as it lives; a file that no process holds is stale and gets a new secret. The last one to
// leave removes it.
Secret shared_secret(const std::string& folder, const std::string& job, Deadline deadline);

}  // namespace gangway
