// Copies rows of a shard between a file and the model's memory, and converts their dtype. If the host can
// access that memory, files are read and written in place. Otherwise rows go through two pieces of pinned
// memory in turn: while the device copies one piece, the host reads or writes the other. The host waits only
// for the copy of the piece that it is about to use.
//
// Thread rule: one thread; all calls of one object on one stream.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/output_file.h"
#include "checkpoint/pieces.h"
#include "checkpoint/safetensors.h"
#include "parallel/model/model.h"

namespace gangway {

class PinnedPieces {
 public:
  struct Piece {
    std::shared_ptr<Buffer> memory;
    std::unique_ptr<Event> copied;  // recorded after the latest copy from or to the piece
  };
  explicit PinnedPieces(Device& device) : device_(device) {}
  // Returns the index of the piece whose copy was started longest ago; that copy may still run. Allocates the
  // piece at its first use.
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
  // Reads the runs of `tensor`, one after the other, into `rows`, which may be strided. They have at most
  // kPieceBytes together.
  void read(const SafetensorsFile& file, const StoredTensor& tensor, std::span<const FileRun> runs,
            const Tensor& rows);

 private:
  Model& model_;
  Stream& stream_;
  PinnedPieces pieces_;
};

class RowWriter {
 public:
  RowWriter(Model& model, const OutputFile& file, Stream& stream)
      : model_(model), file_(file), stream_(stream), pieces_(model.device()) {}
  // Writes `rows`, which may be strided, converted to `dtype`, to the runs of a tensor that begins at byte
  // `tensor` of the file. They have at most kPieceBytes together. The write to the file may be postponed;
  // finish() completes all of them.
  void write(const Tensor& rows, DType dtype, uint64_t tensor, std::span<const FileRun> runs);
  void finish();

 private:
  struct Pending {
    uint64_t tensor = 0;
    std::vector<FileRun> runs = {};  // empty: nothing is pending
  };
  void write_runs(const void* from, uint64_t tensor, std::span<const FileRun> runs);
  void write_pending(size_t piece);

  Model& model_;
  const OutputFile& file_;
  Stream& stream_;
  PinnedPieces pieces_;
  std::array<Pending, 2> pending_;
};

}  // namespace gangway
