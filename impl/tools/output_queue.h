// A queue of bytes to write to a descriptor of the launcher. Other processes may share the descriptor, so it
// must stay blocking. But gangrun has one thread, which must not wait for a slow reader. So the queue writes
// only what a ready pipe or terminal takes at once.
//
// Thread rule: one thread.
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
  // A caller must read no more of a rank's output while the queue is full.
  bool full() const { return bytes_.size() - begin_ >= kFull; }

  void add(std::string_view bytes);
  // Call it when poll says that the descriptor is ready. If the reader has closed its end, the queue drops
  // all further output.
  void write_some();

 private:
  static constexpr size_t kFull = 1 << 20;

  const int fd_;
  bool closed_ = false;
  std::string bytes_;
  size_t begin_ = 0;
};

}  // namespace gangway::tools
