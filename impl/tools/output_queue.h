// Bytes on their way to a descriptor of ours. Others may share the descriptor, so it stays blocking, and
// gangrun, which has one thread, must not wait for a reader that stands still: the queue writes only what a
// ready pipe or terminal takes at once. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gangway::tools {

class OutputQueue {
 public:
  explicit OutputQueue(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool empty() const { return begin_ == bytes_.size(); }
  bool full() const {
    return bytes_.size() - begin_ >= kFull;
  }  // the caller reads no more output before there is room

  void add(std::string_view bytes);
  // Call when poll says that the descriptor is ready. When the reader has closed its end, further output is dropped.
  void write_some();

 private:
  static constexpr size_t kFull = 1 << 20;

  const int fd_;
  bool closed_ = false;
  std::string bytes_;
  size_t begin_ = 0;
};

}  // namespace gangway::tools
