#include "checkpoint/file_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>

namespace gangway::test {
namespace {

std::mutex mutex;
std::shared_ptr<const BeforeCall> before;

template <typename Call, typename... Arguments>
auto ask_and_call(const char* name, int64_t offset, Arguments... arguments) {
  std::shared_ptr<const BeforeCall> hook;
  {
    const std::lock_guard lock(mutex);
    hook = before;
  }
  using Result = decltype(std::declval<Call>()(arguments...));
  if (const int failure = hook ? (*hook)(name, offset) : 0) {
    errno = failure;
    return Result{-1};
  }
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name))(arguments...);
}

}  // namespace

void set_before_call(BeforeCall hook) {
  const std::lock_guard lock(mutex);
  before = hook ? std::make_shared<const BeforeCall>(std::move(hook)) : nullptr;
}

}  // namespace gangway::test

using gangway::test::ask_and_call;

extern "C" {

int mkdir(const char* path, mode_t mode) noexcept {
  return ask_and_call<int (*)(const char*, mode_t)>("mkdir", 0, path, mode);
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return ask_and_call<int (*)(int, const char*, mode_t)>("mkdirat", 0, folder, path, mode);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  return ask_and_call<int (*)(int, const char*, int, const char*, int)>("linkat", 0, from_folder, from,
                                                                        to_folder, to, flags);
}
int symlinkat(const char* at, int folder, const char* path) noexcept {
  return ask_and_call<int (*)(const char*, int, const char*)>("symlinkat", 0, at, folder, path);
}
int rename(const char* from, const char* to) noexcept {
  return ask_and_call<int (*)(const char*, const char*)>("rename", 0, from, to);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return ask_and_call<int (*)(int, const char*, int, const char*)>("renameat", 0, from_folder, from,
                                                                   to_folder, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return ask_and_call<int (*)(int, const char*, int, const char*, unsigned)>("renameat2", 0, from_folder,
                                                                             from, to_folder, to, flags);
}
int unlink(const char* path) noexcept { return ask_and_call<int (*)(const char*)>("unlink", 0, path); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  return ask_and_call<int (*)(int, const char*, int)>("unlinkat", 0, folder, path, flags);
}
int fsync(int file) { return ask_and_call<int (*)(int)>("fsync", 0, file); }
int fallocate(int file, int mode, off_t offset, off_t bytes) {
  return ask_and_call<int (*)(int, int, off_t, off_t)>("fallocate", offset, file, mode, offset, bytes);
}
ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  return ask_and_call<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite", offset, file, data, bytes,
                                                                    offset);
}
ssize_t pread(int file, void* data, size_t bytes, off_t offset) {
  return ask_and_call<ssize_t (*)(int, void*, size_t, off_t)>("pread", offset, file, data, bytes, offset);
}
}
