// The oneDNN products that one CpuOps has made, by shape. Each product computes one slice on a single thread,
// the one that calls it. Each pool thread has its own memory objects, stream and scratchpad, so that a cached
// product allocates nothing here.
//
// Thread rule: the rank's thread calls find() from a pool task, where one OpenMP thread is set. Any threads
// of the pool may call run() at the same time, each with its own number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"

namespace gangway::cpu {

class Scratch;

// One slice of a product: c [m, n] = op(a) op(b) [+ bias] [+ c]. The row strides are those of the matrices in
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

// What oneDNN may use here: what the processor has, under oneDNN's own cap (ONEDNN_MAX_CPU_ISA).
enum class VendorIsa : uint8_t { avx2, avx512, avx512_bf16 };  // the last one: with products of bf16
bool vendor_has(VendorIsa isa);

class GemmCache {
 public:
  explicit GemmCache(int threads);
  ~GemmCache();
  GemmCache(const GemmCache&) = delete;
  GemmCache& operator=(const GemmCache&) = delete;

  class Entry;
  // Returns the product for this slice, which the first use makes, or null if oneDNN has none. It is valid
  // until the next begin(). Throws std::bad_alloc where less than 16 MiB more can be had.
  const Entry* find(const GemmSlice& slice);
  void run(const Entry& entry, int thread, const GemmPointers& pointers, Scratch& scratch) const;

  // Call it before the slices of each product. It clears slices(), and clears the cache if it holds more than
  // 1024 entries.
  void begin();
  std::vector<const Entry*>& slices() { return slices_; }  // storage for the entries of one product

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<const Entry*> slices_;
};

}  // namespace gangway::cpu
