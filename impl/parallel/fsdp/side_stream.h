// A second stream, for copies between the device and the host beside compute. Its work waits for a point of
// the compute stream, which continues until it needs the result.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>

#include "device/device.h"

namespace gangway {

class SideStream {
 public:
  explicit SideStream(Device& device)
      : stream_(device.make_stream(StreamPriority::high)),
        left_(device.make_event()),
        done_(device.make_event()) {}

  // Makes later work of the side stream wait for all present work of `stream`.
  Stream& after(Stream& stream) {
    left_->record(stream);
    stream_->wait(*left_);
    return *stream_;
  }
  // Makes later work of `stream` wait for all present work of the side stream.
  void before(Stream& stream) {
    done_->record(*stream_);
    stream.wait(*done_);
  }
  Stream& stream() { return *stream_; }

 private:
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> left_, done_;
};

}  // namespace gangway
