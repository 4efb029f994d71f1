#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "gang/descriptor.h"
#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/store.h"
#include "gang/rendezvous/store_common.h"

namespace gangway {
namespace {

// Turns a key into a file name: letters, digits, '-', '_' and inner dots stay, all others become %XX. A long
// name is cut and ends with a hash of the key. No result begins with "%t", so that temporary files can have
// such names.
std::string file_name(const std::string& key) {
  constexpr size_t kLongest = 180;
  std::string out;
  for (const char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !out.empty());
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += hex(std::array{static_cast<uint8_t>(c)});
    }
  }
  if (out.size() <= kLongest) return out;
  return out.substr(0, kLongest - 67) + "%%" + hex(hmac_sha256({}, {key}));
}

class FileStore final : public Store {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {
    if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      fail_system(Code::io, "store: cannot make the folder " + folder_, errno);
    struct stat facts {};
    if (stat(folder_.c_str(), &facts) != 0) fail_system(Code::io, "store: cannot look at " + folder_, errno);
    if (!S_ISDIR(facts.st_mode)) fail(Code::invalid_argument, "store: ", folder_, " is not a folder");
    // Any process that can write into the folder can join, so the folder's owner and permissions are the
    // authentication.
    if (facts.st_uid == geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0) return;
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(facts.st_mode & 07777));
    fail(Code::invalid_argument, "store: ", folder_, " has mode ", mode, " and owner ", facts.st_uid,
         "; only this user (", geteuid(), ") may be able to write into it");
  }

  // Hosts may share the file system.
  StoreFacts facts() const override { return {.spans_hosts = true}; }

  void put(const std::string& key, const std::string& value) override {
    check_store_value(key, value);
    std::array<uint8_t, 8> random{};
    random_bytes(random);
    const std::string temporary = folder_ + "/%tmp." + hex(random);
    Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file) fail_system(Code::io, "store: cannot make a file in " + folder_, errno);
    size_t done = 0;
    while (done < value.size()) {
      const ssize_t n = write(file.get(), value.data() + done, value.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) give_up(temporary, key);
      done += static_cast<size_t>(n);
    }
    if (rename(temporary.c_str(), path(key).c_str()) != 0) give_up(temporary, key);
  }

  std::optional<std::string> get(const std::string& key) override {
    check_store_key(key);
    const Descriptor file(open(path(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file) {
      if (errno == ENOENT || errno == ESTALE) return std::nullopt;
      fail_system(Code::io, "store: cannot open \"" + key + "\" in " + folder_, errno);
    }
    struct stat facts {};
    if (fstat(file.get(), &facts) != 0) fail_system(Code::io, "store: cannot look at \"" + key + "\"", errno);
    if (!S_ISREG(facts.st_mode) || static_cast<uint64_t>(facts.st_size) > kStoreValueLimit)
      fail(Code::corrupt, "store: the file of \"", key, "\" in ", folder_, " was not written by a store");
    std::string value(static_cast<size_t>(facts.st_size), '\0');
    size_t done = 0;
    while (done < value.size()) {
      const ssize_t n = pread(file.get(), value.data() + done, value.size() - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_system(Code::io, "store: cannot read \"" + key + "\" in " + folder_, errno);
      if (n == 0) fail(Code::corrupt, "store: the file of \"", key, "\" in ", folder_, " became shorter");
      done += static_cast<size_t>(n);
    }
    return value;
  }

  void remove(const std::string& key) override {
    check_store_key(key);
    if (unlink(path(key).c_str()) != 0 && errno != ENOENT)
      fail_system(Code::io, "store: cannot remove \"" + key + "\" from " + folder_, errno);
  }

  std::string wait(const std::string& key, Deadline deadline) override {
    return poll_store(*this, key, deadline);
  }

 private:
  std::string path(const std::string& key) const { return folder_ + "/" + file_name(key); }

  [[noreturn]] void give_up(const std::string& temporary, const std::string& key) const {
    const int reason = errno;
    unlink(temporary.c_str());
    fail_system(Code::io, "store: cannot write \"" + key + "\" in " + folder_, reason);
  }

  const std::string folder_;
};

}  // namespace

std::shared_ptr<Store> make_file_store(const std::string& folder) {
  if (folder.empty()) fail(Code::invalid_argument, "store: the folder of a file store has no name");
  return std::make_shared<FileStore>(folder);
}

}  // namespace gangway
