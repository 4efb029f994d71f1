#include "train/whole_batch.h"

#include <cstring>
#include <map>

#include "gang/agreement.h"
#include "tensor/host_staging.h"
#include "tensor/host_view.h"

namespace gangway {
namespace {

// The text of a batch: numbers of eight bytes, and the bytes of the tensors.
class Writer {
 public:
  void number(int64_t value) { text.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void tensors(const std::vector<Tensor>& all, Stream& stream) {
    number(static_cast<int64_t>(all.size()));
    for (const Tensor& tensor : all) {
      GW_CHECK(tensor.contiguous(), ==, true);
      number(static_cast<int64_t>(tensor.dtype()));
      number(tensor.rank());
      for (int d = 0; d < tensor.rank(); ++d) number(tensor.dim(d));
      const Tensor host = read_on_host(tensor, stream);
      if (tensor.bytes() != 0) text.append(static_cast<const char*>(host.raw()), tensor.bytes());
    }
  }
  std::string text;
};

// A tensor inside of such a text.
struct Piece {
  DType dtype = DType{};
  std::vector<int64_t> dims;
  const char* data = nullptr;
  size_t bytes = 0;
};
struct Pieces {
  int64_t data_index = 0, weight = -1, shift = 0;
  std::vector<Piece> inputs, targets;
};

class Reader {
 public:
  explicit Reader(const std::string& text) : at_(text.data()) {}
  Pieces read() {
    Pieces batch{number(), number(), number(), {}, {}};
    batch.inputs = pieces();
    batch.targets = pieces();
    return batch;
  }

 private:
  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::vector<Piece> pieces() {
    std::vector<Piece> all(static_cast<size_t>(number()));
    for (Piece& piece : all) {
      piece.dtype = static_cast<DType>(number());
      piece.dims.resize(static_cast<size_t>(number()));
      piece.bytes = item_bytes(piece.dtype);
      for (int64_t& dim : piece.dims) piece.bytes *= static_cast<size_t>(dim = number());
      piece.data = at_;
      at_ += piece.bytes;
    }
    return all;
  }

  const char* at_;
};

// Joins tensor `index` of every batch along dim 0.
Tensor join(const std::vector<const Piece*>& pieces, size_t index, Device& device) {
  Piece first = *pieces[0];
  if (first.dims.empty())
    fail(Code::invalid_argument, "verify: tensor ", index, " of the batch has no dim of rows");
  int64_t rows = 0;
  for (const Piece* piece : pieces) {
    Piece same = *piece;
    if (!same.dims.empty()) same.dims[0] = first.dims[0];
    if (same.dtype != first.dtype || same.dims != first.dims)
      fail(Code::invalid_argument, "verify: tensor ", index,
           " of the batch has another dtype, or other dims than its rows, on some ranks");
    rows += piece->dims[0];
  }
  first.dims[0] = rows;
  const Tensor whole =
      Tensor::allocate(device.allocator(), first.dtype, Shape(std::span<const int64_t>(first.dims)));
  if (whole.count() == 0) return whole;
  const HostStaging host(whole);
  char* to = static_cast<char*>(host.raw());
  for (const Piece* piece : pieces) {
    std::memcpy(to, piece->data, piece->bytes);
    to += piece->bytes;
  }
  host.send(device.stream());
  return whole;
}

std::vector<Tensor> join_all(const std::vector<Pieces>& batches, std::vector<Piece> Pieces::*list,
                             Device& device) {
  std::vector<Tensor> all;
  for (const Pieces& batch : batches)
    if ((batch.*list).size() != (batches[0].*list).size())
      fail(Code::invalid_argument, "verify: ranks gave batches of different numbers of tensors");
  for (size_t i = 0; i < (batches[0].*list).size(); ++i) {
    std::vector<const Piece*> pieces;
    for (const Pieces& batch : batches) pieces.push_back(&(batch.*list)[i]);
    all.push_back(join(pieces, i, device));
  }
  return all;
}

}  // namespace

std::vector<std::string> gather_batches(Gangs& gangs, const Batch& batch, Stream& stream) {
  int index = 0, count = 1;
  gangs.data_shard(&index, &count);
  Writer own;
  own.number(index);
  own.number(batch.weight);
  own.number(batch.shift_labels ? 1 : 0);
  own.tensors(batch.inputs, stream);
  own.tensors(batch.targets, stream);
  std::map<int64_t, std::string> by_index;  // the first rank's of each data coordinate
  for (std::string& text : gangs.root()->agreement().all_gather_bytes(Channel::control, own.text)) {
    int64_t of = 0;
    std::memcpy(&of, text.data(), sizeof of);
    by_index.emplace(of, std::move(text));
  }
  std::vector<std::string> all;
  for (auto& [of, text] : by_index) all.push_back(std::move(text));
  return all;
}

Batch joined_batch(const std::vector<std::string>& batches, Device& device) {
  std::vector<Pieces> all;
  for (const std::string& text : batches) all.push_back(Reader(text).read());
  Batch whole;
  whole.weight = 0;
  for (const Pieces& batch : all)
    whole.weight = whole.weight < 0 || batch.weight < 0 ? -1 : whole.weight + batch.weight;
  whole.shift_labels = all[0].shift != 0;
  whole.inputs = join_all(all, &Pieces::inputs, device);
  whole.targets = join_all(all, &Pieces::targets, device);
  return whole;
}

}  // namespace gangway
