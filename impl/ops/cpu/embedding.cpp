#include "ops/cpu/operations.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels/embedding_kernels.h"

namespace gangway::cpu {

void embedding(Context& context, const EmbeddingArgs& args) {
  constexpr size_t kGrainBytes = size_t{64} * 1024;
  const size_t row = static_cast<size_t>(args.table.dim(1)) * item_bytes(args.table.dtype());
  if (row == 0) return;
  const char* table = args.table.data<char>();
  char* y = args.y.data<char>();
  const int64_t* ids = args.ids.data<int64_t>();
  const auto here = static_cast<uint64_t>(args.table.dim(0)),
             first_row = static_cast<uint64_t>(args.first_row);
  const uint64_t rows = args.rows == 0 ? here : static_cast<uint64_t>(args.rows);
  context.pool.run(static_cast<size_t>(args.ids.dim(0)), std::max<size_t>(1, kGrainBytes / row),
                   [&](int, size_t first, size_t last) {
                     for (size_t t = first; t < last; ++t) {
                       const auto id = static_cast<uint64_t>(ids[t]);
                       const uint64_t local = id - first_row;  // an id below first_row wraps to a huge value
                       if (local < here && id < rows)
                         std::memcpy(y + t * row, table + local * row, row);
                       else
                         std::memset(y + t * row, id < rows ? 0 : 0xff, row);  // 0xff: NaN in every dtype
                     }
                   });
}

// Threads share the columns, in whole cache lines, and not the rows, so that every sum is in the order of t.
void embedding_backward(Context& context, const EmbeddingBackwardArgs& args) {
  constexpr int64_t kColumns = 16;
  const EmbeddingScatter p{args.ids.data<int64_t>(), args.dy.raw(),      args.dtable.raw(), args.ids.dim(0),
                           args.dtable.dim(1),       args.dtable.dim(0), args.first_row};
  const auto kernel =
      choose(context.isa, portable::embedding_kernels, avx2::embedding_kernels, avx512::embedding_kernels)
          .scatter[args.dy.dtype()];
  const int64_t blocks = (p.width + kColumns - 1) / kColumns;
  context.pool.run(static_cast<size_t>(blocks), 4, [&](int, size_t first, size_t last) {
    kernel(p, static_cast<int64_t>(first) * kColumns,
           std::min(p.width, static_cast<int64_t>(last) * kColumns));
  });
}

}  // namespace gangway::cpu
