// The arithmetic of reductions: a left fold in rank order. One source is compiled for each instruction set,
// and the widest one that the processor has and Config::cpu_isa allows is chosen once. Also copies that go
// past the caches.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "gang/collective.h"

namespace gangway::host {

struct FoldArgs {
  const void* const* in = nullptr;  // one pointer for each rank, in rank order
  int ranks = 0;
  size_t first = 0;  // the element of each input to begin with
  size_t count = 0;
  void* out = nullptr;  // element 0 of the result; it overlaps no input
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
};

struct FoldKernels {
  void (*fold)(const FoldArgs& args);
  // Out += in, for floating types; the two do not overlap.
  void (*add)(void* out, const void* in, size_t count, DType dtype);
  // Copies whole cache lines past the caches. `to` lies at the start of a line.
  void (*stream)(unsigned char* to, const unsigned char* from, size_t bytes);
  const char* isa;
};

const FoldKernels& fold_kernels();
// The kernels of one instruction set, for tests; null if the processor does not have it.
const FoldKernels* fold_kernels(const char* isa);

// Copies through the caches. This is also faster if another core reads the bytes next: after a copy past the
// caches that core would have to read them from memory instead of from this core's cache.
void copy_bytes(void* to, const void* from, size_t bytes) noexcept;
// Copies past the caches, for outputs that do not fit into them: the processor does not read a line before it
// writes it. Other cores see the bytes after end_stream().
void stream_bytes(void* to, const void* from, size_t bytes) noexcept;
void end_stream() noexcept;

}  // namespace gangway::host
