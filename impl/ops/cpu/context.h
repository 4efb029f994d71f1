// What the kernels of one CpuOps share: the device's pool, the instruction set, buffers of the pool's
// threads.
//
// Thread rule: made and used by the rank's thread; inside a pool task a thread uses its own scratch buffer
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "ops/ops.h"

namespace gangway::cpu {

// Lowest first. avx2 stands for AVX2 + FMA + F16C, avx512 for F + BW + DQ + VL beside it.
enum class Isa : uint8_t { portable, avx2, avx512 };

const char* name(Isa isa);  // "portable", "avx2", "avx512"
Isa processor_isa();        // the best that this processor and its operating system have
Isa configured_isa();       // processor_isa() under the cap of Config::cpu_isa

// One growable buffer for each thread of the pool; contents do not survive the next call for the same thread.
class Scratch {
 public:
  explicit Scratch(int threads) : buffers_(static_cast<size_t>(threads)) {}

  // At least `count` elements of trivial T, 64-byte aligned. Error{out_of_memory}.
  template <typename T>
  T* of(int thread, size_t count) {
    return static_cast<T*>(bytes_of(thread, count * sizeof(T)));
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  struct alignas(64) Buffer {  // a cache line each: threads grow theirs at the same time
    std::unique_ptr<void, Free> data;
    size_t bytes = 0;
  };
  void* bytes_of(int thread, size_t bytes);
  std::vector<Buffer> buffers_;
};

class GemmCache;

struct Context {
  CpuDevice& device;
  Pool& pool;
  Isa isa;
  Scratch& scratch;
  GemmCache& gemm_cache;
};

}  // namespace gangway::cpu
