// Orders calls that come on one stream after another: each comes after all that is on the stream of the call before.
// Streams live as long as their device, or until the next call.
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
