// The second half of a lowered call: it waits for the native works, and then does the arithmetic that is left
// for their outputs.
//
// Thread rule: that of a Work (gang/work.h).
#pragma once

#include <memory>
#include <vector>

#include "gang/rank.h"
#include "gang/work.h"
#include "tensor/tensor.h"

namespace gangway {

// to[i] = (add ? to[i] : 0) + from[i] / divisor, rounded once. Only floating types may have two types, a
// divisor, or add.
struct Finish {
  const void* from;
  DType from_type;
  void* to;
  DType to_type;
  size_t count;
  int divisor;
  bool add;
};
void finish(const Finish& f, Device& device, Stream& stream);

struct Remainder {
  std::vector<Finish> finishes;
  std::vector<std::shared_ptr<Buffer>> temporaries;
};

// The rank's waits drive the work to its end, also when no caller holds it. In that case the finishes run on
// `side`, because a stream of the caller's may hold other work that nobody should wait for.
WorkPtr make_lowered_work(const std::shared_ptr<Rank>& owner, std::vector<WorkPtr> works, Remainder rest,
                          std::shared_ptr<Stream> side);

}  // namespace gangway
