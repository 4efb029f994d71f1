// Orders calls that use different streams: the work of each call waits for all work on the stream of the
// previous call. A stream must live until the next call.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>

#include "device/device.h"

namespace gangway {

class StreamOrder {
 public:
  explicit StreamOrder(Stream& first) : last_(&first) {}

  void enter(Stream& stream) {
    if (&stream == last_) return;
    if (left_ == nullptr) left_ = stream.device().make_event();
    left_->record(*last_);
    stream.wait(*left_);
    last_ = &stream;
  }

 private:
  Stream* last_;
  std::unique_ptr<Event> left_;
};

}  // namespace gangway
