// Where the 32 bytes come from that prove that a process belongs to a gang: an inherited descriptor, a file,
// or, on one host, a file that the ranks of one user make among themselves.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

// From an inherited descriptor (a memfd, a file, or a pipe): 32 bytes from its beginning. They are read once
// and kept as long as the process lives; from then on the descriptor is close-on-exec. IO or
// INVALID_ARGUMENT, which name GANGWAY_SECRET_FD.
Secret secret_from_descriptor(int fd);

// From a regular file of this user, with mode 0600 or less and exactly 32 bytes. Anything else is
// INVALID_ARGUMENT, which names GANGWAY_SECRET_FILE.
Secret secret_from_file(const std::string& path);

// The folder for secrets that ranks make themselves: the first of secret_folders() that belongs to this user,
// made with mode 0700 if it is absent. INVALID_ARGUMENT, with the reason, if none can be used or if others
// may enter this user's folder.
std::string secret_folder();
// The candidates: gangway in $XDG_RUNTIME_DIR or /run/user/<uid>, then gangway-<uid> in /tmp, /var/tmp and
// /dev/shm. There are several because another user may have taken one of those names beforehand.
std::vector<std::string> secret_folders();
std::string usable_folder(const std::vector<std::string>& folders);

// The secret of `job` in `folder`: the first rank makes it, the others read it. Every process holds a lock on
// the file as long as it lives. A file that no process holds is stale and gets a new secret. The last process
// to leave removes the file.
Secret shared_secret(const std::string& folder, const std::string& job, Deadline deadline);

}  // namespace gangway
