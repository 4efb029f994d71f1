#include "gang/rendezvous/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "gang/descriptor.h"
#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/store_common.h"

namespace gangway {
namespace {

// The locks that this process holds, by path, and the secrets that it has read from descriptors, because a
// pipe can be read only once.
class Held {
 public:
  static Held& instance() {
    static Held held;
    return held;
  }

  // The last process to leave removes the file. A forked child shares its parent's lock, so it must not.
  ~Held() {
    if (getpid() != process_) return;
    for (const auto& [path, lock] : locks)
      if (flock(lock.first.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }

  std::mutex mutex;
  std::map<std::string, std::pair<Descriptor, Secret>> locks;
  std::map<int, Secret> inherited;

 private:
  const pid_t process_ = getpid();
};

// Reads up to 33 bytes from the start of the file, or from the current place in a pipe. The extra byte shows
// that there is too much.
size_t read_secret(int fd, Secret& out, const char* variable) {
  std::array<uint8_t, 33> bytes{};
  size_t done = 0;
  bool pipe = false;
  while (done < bytes.size()) {
    // The writer of a pipe may keep its end open, so a read after the 32nd byte could block.
    const size_t wanted = (pipe ? out.size() : bytes.size()) - done;
    if (wanted == 0) break;
    const ssize_t n = pipe ? read(fd, bytes.data() + done, wanted)
                           : pread(fd, bytes.data() + done, wanted, static_cast<off_t>(done));
    if (n < 0 && errno == ESPIPE && !pipe) {
      pipe = true;
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_system(Code::invalid_argument, text(variable, ": cannot read the secret"), errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  std::copy_n(bytes.begin(), out.size(), out.begin());
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return done;
}

void check_private(int fd, const std::string& what) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) fail_system(Code::io, what, errno);
  if (!S_ISREG(facts.st_mode)) fail(Code::invalid_argument, what, " is not a regular file");
  if (facts.st_uid != geteuid())
    fail(Code::invalid_argument, what, " belongs to user ", facts.st_uid, ", not to ", geteuid());
  if ((facts.st_mode & 077) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(facts.st_mode & 07777));
    fail(Code::invalid_argument, what, " has mode ", mode, ", not 0600");
  }
}

bool still_named(int fd, const std::string& path) {
  struct stat open_file {
  }, named{};
  return fstat(fd, &open_file) == 0 && lstat(path.c_str(), &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
}

Descriptor open_or_make(const std::string& path) {
  while (true) {
    Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file) return file;
    if (errno != EEXIST) fail_system(Code::io, "cannot make the secret " + path, errno);
    file = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file) return file;
    if (errno != ENOENT) fail_system(Code::io, "cannot open the secret " + path, errno);
  }
}

// One attempt to share the file. A process that gets the exclusive lock is alone, so what the file holds is
// stale, and it writes a new secret. All processes read under the shared lock, under which none can write.
std::optional<Secret> try_share(int fd, const std::string& path) {
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
    if (!still_named(fd, path)) return std::nullopt;
    Secret fresh;
    random_bytes(fresh);
    if (ftruncate(fd, 0) != 0 ||
        pwrite(fd, fresh.data(), fresh.size(), 0) != static_cast<ssize_t>(fresh.size()))
      fail_system(Code::io, "cannot write the secret " + path, errno);
    // The change from the exclusive to the shared lock is not atomic: another process may write in between,
    // so the secret is read again below.
  }
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return std::nullopt;
  Secret secret;
  if (!still_named(fd, path) || read_secret(fd, secret, path.c_str()) != secret.size()) return std::nullopt;
  return secret;
}

}  // namespace

Secret secret_from_descriptor(int fd) {
  Held& held = Held::instance();
  const std::lock_guard lock(held.mutex);
  const auto known = held.inherited.find(fd);
  if (known != held.inherited.end()) return known->second;
  const int flags = fcntl(fd, F_GETFD);
  if (flags < 0)
    fail_system(Code::invalid_argument, text("GANGWAY_SECRET_FD is ", fd, ", not an open descriptor"), errno);
  Secret secret;
  const size_t bytes = read_secret(fd, secret, "GANGWAY_SECRET_FD");
  if (bytes != secret.size())
    fail(Code::invalid_argument, "GANGWAY_SECRET_FD: descriptor ", fd,
         bytes < secret.size() ? " ended after " : " holds over ",
         bytes < secret.size() ? bytes : secret.size(), " bytes, not 32");
  fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  held.inherited.emplace(fd, secret);
  return secret;
}

Secret secret_from_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const std::string what = "GANGWAY_SECRET_FILE: " + path;
  if (!file) fail_system(Code::invalid_argument, what + " cannot be opened", errno);
  check_private(file.get(), what);
  Secret secret;
  if (read_secret(file.get(), secret, "GANGWAY_SECRET_FILE") != secret.size()) {
    struct stat facts {};
    fstat(file.get(), &facts);
    fail(Code::invalid_argument, what, " has ", facts.st_size, " bytes, not 32");
  }
  return secret;
}

namespace {

// Returns why the folder cannot be used, or "" if it can. Creates the folder if it is missing.
std::string refusal_of_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return text("cannot be made: ", strerror(errno));
  struct stat facts {};
  if (lstat(folder.c_str(), &facts) != 0) return text("cannot be looked at: ", strerror(errno));
  if (!S_ISDIR(facts.st_mode)) return "is no folder";
  if (facts.st_uid != geteuid()) return text("belongs to user ", facts.st_uid);
  if ((facts.st_mode & 077) != 0)
    fail(Code::invalid_argument, "the folder of secrets ", folder,
         " is this user's, but others may enter it: remove it "
         "(its secrets may be known) or set GANGWAY_SECRET_FILE");
  return "";
}

}  // namespace

std::vector<std::string> secret_folders() {
  const char* const runtime = secure_getenv("XDG_RUNTIME_DIR");
  const uid_t user = geteuid();
  std::vector<std::string> folders;
  // Some of a user's shells have this variable, others (of a cron job or of su) do not.
  const std::string own = runtime != nullptr && runtime[0] == '/' ? runtime : text("/run/user/", user);
  struct stat facts {};
  if (stat(own.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == user &&
      access(own.c_str(), W_OK | X_OK) == 0)
    folders.push_back(own + "/gangway");
  for (const char* const shared : {"/tmp", "/var/tmp", "/dev/shm"})
    folders.push_back(text(shared, "/gangway-", user));
  return folders;
}

std::string usable_folder(const std::vector<std::string>& folders) {
  std::string why;
  for (const std::string& folder : folders) {
    const std::string refusal = refusal_of_folder(folder);
    if (refusal.empty()) return folder;
    why += text(why.empty() ? "" : ", ", folder, " ", refusal);
  }
  fail(Code::invalid_argument, "no folder for the gang's secret can be used: ", why,
       "; set GANGWAY_SECRET_FILE on every rank to a file of mode 0600 with 32 random bytes "
       "(head -c 32 /dev/urandom)");
}

std::string secret_folder() { return usable_folder(secret_folders()); }

Secret shared_secret(const std::string& folder, const std::string& job, Deadline deadline) {
  std::string name;
  for (const char c : job.substr(0, 64)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    name.push_back(plain ? c : '_');
  }
  const std::string path = folder + "/" + name + "." + hex(hmac_sha256({}, {job})).substr(0, 32);
  Held& held = Held::instance();
  const std::lock_guard lock(held.mutex);
  const auto known = held.locks.find(path);
  if (known != held.locks.end()) return known->second.second;
  StoreBackoff backoff(deadline);
  while (true) {
    Descriptor file = open_or_make(path);
    check_private(file.get(), "the secret " + path);
    if (const auto secret = try_share(file.get(), path)) {
      held.locks.emplace(path, std::pair(std::move(file), *secret));
      return *secret;
    }
    file.reset();  // releases a lock on a file that was removed or is half written
    if (!backoff.pause()) fail(Code::timeout, "the secret ", path, " was being written when the time was up");
  }
}

}  // namespace gangway
