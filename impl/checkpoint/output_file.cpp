#include "checkpoint/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/error.h"

namespace gangway {
namespace {

// While it exists, a write beyond the limit of file sizes only fails with EFBIG. The kernel also sends
// SIGXFSZ, which would end the process, to the thread that writes; this class blocks the signal in that
// thread and removes it afterwards.
class SigxfszBlocked {
 public:
  SigxfszBlocked() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&own_);
    sigaddset(&own_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &own_, &earlier_);
  }
  SigxfszBlocked(const SigxfszBlocked&) = delete;
  SigxfszBlocked& operator=(const SigxfszBlocked&) = delete;
  ~SigxfszBlocked() {
    const timespec at_once{};
    while (!was_pending_ && sigtimedwait(&own_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &earlier_, nullptr);
  }

 private:
  sigset_t own_, earlier_;
  bool was_pending_ = false;
};

}  // namespace

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
}

void OutputFile::open(const std::string& path, int flags) {
  path_ = path;
  file_ = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) fail_file("save: opening", path, errno);
}

void OutputFile::reserve(uint64_t bytes) const {
  int failed = 0;
  {
    const SigxfszBlocked blocked;
    const auto size = static_cast<off_t>(bytes);
    do {
      failed = fallocate(file_, 0, 0, size) == 0 ? 0 : errno;
    } while (failed == EINTR);
    if (failed == EOPNOTSUPP || failed == ENOSYS) failed = ftruncate(file_, size) == 0 ? 0 : errno;
  }
  if (failed != 0) fail_file(text("save: reserving ", bytes, " bytes of"), path_, failed);
}

void OutputFile::write(uint64_t offset, const void* data, size_t bytes) const {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t put = 0;
    int failed = 0;
    {
      const SigxfszBlocked blocked;
      put = pwrite(file_, from, bytes, static_cast<off_t>(offset));
      failed = errno;
    }
    if (put < 0 && failed == EINTR) continue;
    if (put < 0) fail_file(text("save: writing at byte ", offset, " of"), path_, failed);
    from += put;
    offset += static_cast<uint64_t>(put);
    bytes -= static_cast<size_t>(put);
  }
}

void OutputFile::sync() const {
  if (fsync(file_) != 0) fail_file("save: fsync of", path_, errno);
}

void OutputFile::close() {
  if (::close(std::exchange(file_, -1)) != 0) fail_file("save: closing", path_, errno);
}

}  // namespace gangway
