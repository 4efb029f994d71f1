// The arithmetic of reductions: a left fold in rank order. One source, compiled per instruction set; the
// widest that the processor has and Config::cpu_isa allows is chosen once. Copies that go past the caches.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "gang/collective.h"

namespace gangway::host {

struct FoldArgs {
  const void* const* in = nullptr;  // one pointer per rank, in rank order
  int ranks = 0;
  size_t first = 0;  // element of each input to begin with
  size_t count = 0;
  void* out = nullptr;  // element 0 of the result; overlaps no input
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
};

struct FoldKernels {
  void (*fold)(const FoldArgs& args);
  void (*add)(void* out, const void* in, size_t count, DType dtype);  // out += in, floating; no overlap
  // Whole lines, past the caches, to where a line begins.
  void (*stream)(unsigned char* to, const unsigned char* from, size_t bytes);
  const char* isa;
};

const FoldKernels& fold_kernels();
// Of one instruction set, for tests; null if the processor does not have it.
const FoldKernels* fold_kernels(const char* isa);

// Through the caches also where another core reads next: past them that core reads from memory, and the two
// take longer together than the lines take from cache to cache.
void copy_bytes(void* to, const void* from, size_t bytes) noexcept;
// Past the caches, for outputs that they could not hold: a line is not fetched before it is written. Other cores see
// what was written after end_stream().
void stream_bytes(void* to, const void* from, size_t bytes) noexcept;
void end_stream() noexcept;

}  // namespace gangway::host
