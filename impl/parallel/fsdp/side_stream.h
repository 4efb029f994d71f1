// A stream beside the one that computes, for copies between the device and the host: what runs on it comes after
// a point of another stream, and the other stream goes on until it needs the result.
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

  // Its later work comes after all that `stream` holds now.
  Stream& after(Stream& stream) {
    left_->record(stream);
    stream_->wait(*left_);
    return *stream_;
  }
  // Later work of `stream` comes after all that this one holds now.
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
