// Visits this rank's part of a tensor in pieces of limited size, in the order of a file that has the whole
// tensor, row-major.
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/interrupt.h"
#include "checkpoint/file_place.h"
#include "nn/parameter.h"

namespace gangway {

constexpr size_t kPieceBytes = 1 << 20;

// Calls use(at, count, byte) for each piece, of at most kPieceBytes: elements [at, at + count) of this rank's
// part, which is `box` of a tensor of shape `shape`, begin at `byte` of the tensor. An element has `item`
// bytes in the file.
template <typename Use>
void for_pieces(const Shape& shape, const Box& box, size_t item, Use&& use) {
  const auto most = static_cast<int64_t>(kPieceBytes / item);
  for_each_run(shape, box, [&](int64_t whole, int64_t local, int64_t count) {
    for (int64_t done = 0; done < count; done += most) {
      poll_interrupt_throttled();
      use(local + done, std::min(most, count - done), static_cast<uint64_t>(whole + done) * item);
    }
  });
}
// The same for this rank's shard of a parameter.
template <typename Use>
void for_pieces(const Parameter& parameter, size_t item, Use&& use) {
  if (!parameter.shard || parameter.shard.count() == 0) return;
  for_pieces(parameter.shape, parameter.box(), item, use);
}

// Consecutive bytes of a tensor in a file.
struct FileRun {
  uint64_t first = 0;  // byte of the tensor
  size_t bytes = 0;
};

// Calls use(rows, runs) for each piece of a shard whose values lie at `place` in the files. `box` is the
// shard's box of the parameter. `rows` is a view of the shard in the order of the file; it is not contiguous
// where the files have the matrix transposed. Its elements lie in `runs`, one after the other.
template <typename Use>
void for_pieces(const FilePlace& place, const Box& box, const Tensor& shard, size_t item, Use&& use) {
  if (!shard || box.shape.count() == 0) return;
  const Box there = place.in_file(box);
  const Tensor all = place.as_in_file(shard, box);
  if (!place.transposed) {
    const Tensor flat = all.reshape(Shape{all.count()});
    return for_pieces(place.shape, there, item, [&](int64_t at, int64_t count, uint64_t byte) {
      const FileRun run{byte, static_cast<size_t>(count) * item};
      use(flat.slice(0, at, at + count), std::span<const FileRun>(&run, 1));
    });
  }
  const auto most = static_cast<int64_t>(kPieceBytes / item);
  const int64_t rows = all.dim(0), columns = all.dim(1);
  const int64_t some_columns = std::min(columns, most), some_rows = most / some_columns;
  std::vector<FileRun> runs;
  for (int64_t row = 0; row < rows; row += some_rows)
    for (int64_t column = 0; column < columns; column += some_columns) {
      poll_interrupt_throttled();
      const int64_t last = std::min(rows, row + some_rows), end = std::min(columns, column + some_columns);
      runs.clear();
      for (int64_t r = row; r < last; ++r)
        runs.push_back(
            {static_cast<uint64_t>((there.first[0] + r) * place.shape[1] + there.first[1] + column) * item,
             static_cast<size_t>(end - column) * item});
      use(all.slice(0, row, last).slice(1, column, end), std::span<const FileRun>(runs));
    }
}

}  // namespace gangway
