#include "checkpoint/row_copies.h"

#include <utility>

#include "checkpoint/pieces.h"

namespace gangway {
namespace {

// Returns `rows` if they have the dtype, else a temporary tensor of the same shape.
Tensor in_dtype(Model& model, const Tensor& rows, DType dtype) {
  return rows.dtype() == dtype ? rows : model.temporaries().allocate(dtype, rows.shape());
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

void RowReader::read(const SafetensorsFile& file, const StoredTensor& tensor, uint64_t from,
                     const Tensor& rows) {
  const StackScope scope(model_.temporaries());
  const Tensor stored = in_dtype(model_, rows, tensor.dtype);
  const uint64_t to = from + stored.bytes();
  if (is_on_host(model_.device().memory_kind())) {
    file.read(tensor, from, to, stored.raw());
  } else {
    PinnedPieces::Piece& piece = pieces_[pieces_.next()];
    piece.copied->wait();
    file.read(tensor, from, to, piece.memory->data());
    model_.device().copy(stored.raw(), piece.memory->data(), stored.bytes(), stream_);
    piece.copied->record(stream_);
  }
  if (stored.dtype() != rows.dtype()) model_.ops().cast(stored, rows, stream_);
}

void RowWriter::write(const Tensor& rows, DType dtype, uint64_t to) {
  const StackScope scope(model_.temporaries());
  const Tensor stored = in_dtype(model_, rows, dtype);
  if (dtype != rows.dtype()) model_.ops().cast(rows, stored, stream_);
  if (is_on_host(model_.device().memory_kind())) return file_.write(to, stored.raw(), stored.bytes());
  const size_t piece = pieces_.next();
  write_pending(piece);
  model_.device().copy(pieces_[piece].memory->data(), stored.raw(), stored.bytes(), stream_);
  pieces_[piece].copied->record(stream_);
  pending_[piece] = {to, stored.bytes()};
}

void RowWriter::finish() {
  for (size_t piece = 0; piece < pending_.size(); ++piece) write_pending(piece);
}

void RowWriter::write_pending(size_t piece) {
  const Pending rows = std::exchange(pending_[piece], {});
  if (rows.bytes == 0) return;
  pieces_[piece].copied->wait();
  file_.write(rows.to, pieces_[piece].memory->data(), rows.bytes);
}

}  // namespace gangway
