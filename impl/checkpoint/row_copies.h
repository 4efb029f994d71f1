// Rows of a shard on their way between a file and the memory where they lie, converted on the way. Where the host reaches
// that memory the file is read and written in place. Else rows go through two pieces of pinned memory in turn: while the
// device copies one, the host reads or writes the other. The host waits for no more than the copy of the piece that it is
// about to use.
//
// Thread rule: one thread; all calls of one object on one stream.
#pragma once

#include <array>
#include <memory>

#include "checkpoint/output_file.h"
#include "checkpoint/safetensors.h"
#include "parallel/model/model.h"

namespace gangway {

class PinnedPieces {
 public:
  struct Piece {
    std::shared_ptr<Buffer> memory;
    std::unique_ptr<Event> copied;  // the copy that was started last
  };
  explicit PinnedPieces(Device& device) : device_(device) {}
  // Index of the piece whose copy was started longest ago; it may be under way. Takes the memory at the first use.
  size_t next();
  Piece& operator[](size_t piece) { return pieces_[piece]; }

 private:
  Device& device_;
  std::array<Piece, 2> pieces_;
  size_t next_ = 0;
};

class RowReader {
 public:
  RowReader(Model& model, Stream& stream) : model_(model), stream_(stream), pieces_(model.device()) {}
  // Elements of `tensor` from byte `from` on, at most kPieceBytes, into `rows`.
  void read(const SafetensorsFile& file, const StoredTensor& tensor, uint64_t from, const Tensor& rows);

 private:
  Model& model_;
  Stream& stream_;
  PinnedPieces pieces_;
};

class RowWriter {
 public:
  RowWriter(Model& model, const OutputFile& file, Stream& stream)
      : model_(model), file_(file), stream_(stream), pieces_(model.device()) {}
  // `rows` as `dtype`, at most kPieceBytes, to byte `to`. Some wait for a later call: finish() ends them all.
  void write(const Tensor& rows, DType dtype, uint64_t to);
  void finish();

 private:
  struct Pending {
    uint64_t to = 0;
    size_t bytes = 0;  // 0: none
  };
  void write_pending(size_t piece);

  Model& model_;
  const OutputFile& file_;
  Stream& stream_;
  PinnedPieces pieces_;
  std::array<Pending, 2> pending_;
};

}  // namespace gangway
