// What the kernels of one CpuOps share: the device's pool, the instruction set, and scratch buffers for the
// pool's threads.
//
// Thread rule: made and used by the rank's thread. Inside a pool task, a thread uses only its own scratch
// buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "ops/ops.h"

namespace gangway::cpu {

// Instruction sets, lowest first. avx2 means AVX2 + FMA + F16C; avx512 adds AVX-512 F + BW + DQ + VL.
enum class Isa : uint8_t { portable, avx2, avx512 };

const char* name(Isa isa);  // "portable", "avx2", "avx512"
Isa processor_isa();        // the best one that the processor and the operating system support
Isa configured_isa();       // processor_isa(), capped by Config::cpu_isa

// One growable buffer for each thread of the pool. A thread's next call overwrites the contents.
class Scratch {
 public:
  explicit Scratch(int threads) : buffers_(static_cast<size_t>(threads)) {}

  // Returns at least `count` elements of a trivial T, aligned to 64 bytes. Throws Error{out_of_memory}.
  template <typename T>
  T* of(int thread, size_t count) {
    return static_cast<T*>(bytes_of(thread, count * sizeof(T)));
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  struct alignas(64) Buffer {  // a cache line each, since threads grow theirs at the same time
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
