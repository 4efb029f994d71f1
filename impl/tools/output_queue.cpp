#include "tools/output_queue.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gangway::tools {

void OutputQueue::add(std::string_view bytes) {
  if (!closed_) bytes_ += bytes;
}

void OutputQueue::write_some() {
  // A pipe that poll reports as ready has room for PIPE_BUF bytes.
  const ssize_t n = write(fd_, bytes_.data() + begin_, std::min<size_t>(bytes_.size() - begin_, PIPE_BUF));
  if (n > 0)
    begin_ += static_cast<size_t>(n);
  else if (errno != EAGAIN && errno != EINTR)
    closed_ = true;
  if (closed_ || empty()) {
    bytes_.clear();
    begin_ = 0;
  } else if (begin_ >= kFull) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
}

}  // namespace gangway::tools
