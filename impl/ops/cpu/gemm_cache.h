// The oneDNN products that one CpuOps has made, by shape. Each runs single-threaded, on one slice, in the
// thread that calls it; memory objects, streams and scratchpads are per pool thread, so that a hit allocates
// nothing of ours.
//
// Thread rule: find() by the rank's thread under one OpenMP thread (from a pool task); run() by any thread of
// the pool with its own number, several at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"

namespace gangway::cpu {

class Scratch;

// One slice of a product: c [m, n] = op(a) op(b) [+ bias] [+ c]; row strides of the matrices as they lie in
// memory.
struct GemmSlice {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, b_row = 0, c_row = 0;
  DType dtype = DType::f32, c_dtype = DType::f32;
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  friend bool operator==(const GemmSlice&, const GemmSlice&) = default;
};

struct GemmPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
};

class GemmCache {
 public:
  explicit GemmCache(int threads);
  ~GemmCache();
  GemmCache(const GemmCache&) = delete;
  GemmCache& operator=(const GemmCache&) = delete;

  class Entry;
  // The product for this slice, made on first use; null when oneDNN has none. Valid until the next begin().
  const Entry* find(const GemmSlice& slice);
  void run(const Entry& entry, int thread, const GemmPointers& pointers, Scratch& scratch) const;

  // Before the slices of one product: forgets all entries when there are more than a thousand.
  void begin();
  std::vector<const Entry*>& slices() { return slices_; }  // room for the entries of one product

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<const Entry*> slices_;
};

}  // namespace gangway::cpu
