// The record by which ranks tell one another small values: an all-gather of bytes.
//
// Thread rule: a pure function.
#pragma once

#include <cstddef>

#include "gang/collective.h"

namespace gangway {

// The `count` bytes of every rank come to `out`, in rank order.
inline Collective gather_of_bytes(const void* in, void* out, size_t count) {
  Collective c;
  c.op = CollectiveOp::all_gather;
  c.in = in;
  c.out = out;
  c.count = count;
  c.dtype = DType::u8;
  return c;
}

}  // namespace gangway
