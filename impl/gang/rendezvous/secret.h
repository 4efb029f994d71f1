// The sources of the 32-byte secret that proves that a process belongs to a gang: an inherited descriptor, a
// file, or, on one host, a file that the ranks of one user create themselves.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "gang/rendezvous/tcp_store_options.h"

namespace gangway {

// Reads 32 bytes from the beginning of an inherited descriptor (a memfd, a file, or a pipe). They are read
// once and kept as long as the process lives; from then on the descriptor is close-on-exec. Throws IO or
// INVALID_ARGUMENT, which name GANGWAY_SECRET_FD.
Secret secret_from_descriptor(int fd);

// Reads the secret from a regular file of this user, with mode 0600 or less and exactly 32 bytes. Any other
// file is INVALID_ARGUMENT, which names GANGWAY_SECRET_FILE.
Secret secret_from_file(const std::string& path);

// Returns the folder for secrets that ranks create themselves: the first of secret_folders() that belongs to
// this user. It is created with mode 0700 if it is missing. INVALID_ARGUMENT, with the reason: none can be
// used, or others may enter this user's folder.
std::string secret_folder();
// Returns the candidates: gangway in $XDG_RUNTIME_DIR or /run/user/<uid>, then gangway-<uid> in /tmp,
// /var/tmp and
// /dev/shm. There are several, because another user may already have created a folder of one of those names.
std::vector<std::string> secret_folders();
std::string usable_folder(const std::vector<std::string>& folders);

// Returns the secret of `job` in `folder`: the first rank writes it, the others read it. Every process holds
// a lock on the file as long as it lives. A file that no process has locked is stale and gets a new secret.
// The last process to leave removes the file.
Secret shared_secret(const std::string& folder, const std::string& job, Deadline deadline);

}  // namespace gangway
