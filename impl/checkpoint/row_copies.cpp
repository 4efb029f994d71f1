#include "checkpoint/row_copies.h"

#include <utility>

namespace gangway {
namespace {

// Returns `rows` if they are dense and have the dtype, else a temporary tensor of the same shape.
Tensor as_stored(Model& model, const Tensor& rows, DType dtype) {
  const bool same = rows.dtype() == dtype && rows.contiguous();
  return same ? rows : model.temporaries().allocate(dtype, rows.shape());
}

}  // namespace

size_t PinnedPieces::next() {
  const size_t piece = std::exchange(next_, 1 - next_);
  if (pieces_[piece].memory == nullptr) {
    pieces_[piece].memory = Buffer::allocate(device_.pinned_allocator(), kPieceBytes);
    pieces_[piece].copied = device_.make_event();
  }
  return piece;
}

void RowReader::read(const SafetensorsFile& file, const StoredTensor& tensor, std::span<const FileRun> runs,
                     const Tensor& rows) {
  const StackScope scope(model_.temporaries());
  const Tensor stored = as_stored(model_, rows, tensor.dtype);
  const auto read_runs = [&](void* to) {
    auto* at = static_cast<char*>(to);
    for (const FileRun& run : runs) {
      file.read(tensor, run.first, run.first + run.bytes, at);
      at += run.bytes;
    }
  };
  if (is_on_host(model_.device().memory_kind())) {
    read_runs(stored.raw());
  } else {
    PinnedPieces::Piece& piece = pieces_[pieces_.next()];
    piece.copied->wait();
    read_runs(piece.memory->data());
    model_.device().copy(stored.raw(), piece.memory->data(), stored.bytes(), stream_);
    piece.copied->record(stream_);
  }
  if (stored.raw() != rows.raw()) model_.ops().cast(stored, rows, stream_);
}

void RowWriter::write(const Tensor& rows, DType dtype, uint64_t tensor, std::span<const FileRun> runs) {
  const StackScope scope(model_.temporaries());
  const Tensor stored = as_stored(model_, rows, dtype);
  if (stored.raw() != rows.raw()) model_.ops().cast(rows, stored, stream_);
  if (is_on_host(model_.device().memory_kind())) return write_runs(stored.raw(), tensor, runs);
  const size_t piece = pieces_.next();
  write_pending(piece);
  model_.device().copy(pieces_[piece].memory->data(), stored.raw(), stored.bytes(), stream_);
  pieces_[piece].copied->record(stream_);
  pending_[piece] = {tensor, {runs.begin(), runs.end()}};
}

void RowWriter::finish() {
  for (size_t piece = 0; piece < pending_.size(); ++piece) write_pending(piece);
}

void RowWriter::write_runs(const void* from, uint64_t tensor, std::span<const FileRun> runs) {
  const auto* at = static_cast<const char*>(from);
  for (const FileRun& run : runs) {
    file_.write(tensor + run.first, at, run.bytes);
    at += run.bytes;
  }
}

void RowWriter::write_pending(size_t piece) {
  const Pending rows = std::exchange(pending_[piece], {});
  if (rows.runs.empty()) return;
  pieces_[piece].copied->wait();
  write_runs(pieces_[piece].memory->data(), rows.tensor, rows.runs);
}

}  // namespace gangway
