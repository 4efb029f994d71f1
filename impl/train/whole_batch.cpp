#include "train/whole_batch.h"

#include <algorithm>
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
  std::vector<Piece> inputs, targets, documents, positions, token_weights;
};
struct List {
  const char* name;
  std::vector<Piece> Pieces::*pieces;
};
// In the order in which a text has them.
constexpr List kLists[] = {{"inputs", &Pieces::inputs},
                           {"targets", &Pieces::targets},
                           {"documents", &Pieces::documents},
                           {"positions", &Pieces::positions},
                           {"token_weights", &Pieces::token_weights}};

class Reader {
 public:
  explicit Reader(const std::string& text) : at_(text.data()) {}
  Pieces read() {
    Pieces batch;
    batch.data_index = number();
    batch.weight = number();
    batch.shift = number();
    for (const List& list : kLists) batch.*list.pieces = pieces();
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

// Joins the pieces along dim 0. `what` names them.
Tensor join(const std::vector<const Piece*>& pieces, const std::string& what,
            const std::shared_ptr<Allocator>& memory, Stream& stream) {
  Piece first = *pieces[0];
  if (first.dims.empty()) fail(Code::invalid_argument, "verify: ", what, " has no dim of rows");
  int64_t rows = 0;
  for (const Piece* piece : pieces) {
    Piece same = *piece;
    if (!same.dims.empty()) same.dims[0] = first.dims[0];
    if (same.dtype != first.dtype || same.dims != first.dims)
      fail(Code::invalid_argument, "verify: ", what,
           " has another dtype, or other dims than its rows, on some ranks");
    rows += piece->dims[0];
  }
  first.dims[0] = rows;
  const Tensor whole = Tensor::allocate(memory, first.dtype, Shape(std::span<const int64_t>(first.dims)));
  if (whole.count() == 0) return whole;
  const HostStaging host(whole);
  char* to = static_cast<char*>(host.raw());
  for (const Piece* piece : pieces) {
    std::memcpy(to, piece->data, piece->bytes);
    to += piece->bytes;
  }
  host.send(stream);
  return whole;
}

std::vector<Tensor> join_all(const std::vector<Pieces>& batches, const List& list,
                             const std::shared_ptr<Allocator>& memory, Stream& stream) {
  std::vector<Tensor> all;
  const size_t count = (batches[0].*list.pieces).size();
  for (const Pieces& batch : batches)
    if (const size_t other = (batch.*list.pieces).size(); other != count)
      fail(Code::invalid_argument, "verify: ranks gave ", count, " and ", other, " tensors as batch.",
           list.name);
  for (size_t i = 0; i < count; ++i) {
    std::vector<const Piece*> pieces;
    for (const Pieces& batch : batches) pieces.push_back(&(batch.*list.pieces)[i]);
    all.push_back(join(pieces, text("batch.", list.name, "[", i, "]"), memory, stream));
  }
  return all;
}

Tensor join_one(const std::vector<Pieces>& batches, const List& list,
                const std::shared_ptr<Allocator>& memory, Stream& stream) {
  const std::vector<Tensor> all = join_all(batches, list, memory, stream);
  return all.empty() ? Tensor() : all[0];
}

// A rank without rows, whose weight is 0, goes with every other.
int64_t joined_weight(const std::vector<Pieces>& batches) {
  int64_t sum = 0;
  size_t unknown = 0, known = 0;
  for (const Pieces& batch : batches) {
    const bool empty = !batch.inputs.empty() && !batch.inputs[0].dims.empty() && batch.inputs[0].dims[0] == 0;
    if (batch.weight < 0)
      ++unknown;
    else if (batch.weight != 0 || !empty)
      ++known;
    sum += std::max<int64_t>(batch.weight, 0);
  }
  if (unknown != 0 && known != 0)
    fail(Code::invalid_argument,
         "verify: some ranks gave batch.weight = -1 (the library counts), and others "
         "a number; give the same on all");
  return unknown != 0 ? -1 : sum;
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
  for (const Tensor& optional : {batch.documents, batch.positions, batch.token_weights})
    own.tensors(optional ? std::vector<Tensor>{optional} : std::vector<Tensor>(), stream);
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
  whole.weight = joined_weight(all);
  whole.shift_labels = all[0].shift != 0;
  Stream& stream = device.stream();
  const auto memory = device.allocator(), host = device.pinned_allocator();
  whole.inputs = join_all(all, kLists[0], memory, stream);
  whole.targets = join_all(all, kLists[1], memory, stream);
  whole.documents = join_one(all, kLists[2], host, stream);
  whole.positions = join_one(all, kLists[3], host, stream);
  whole.token_weights = join_one(all, kLists[4], memory, stream);
  return whole;
}

}  // namespace gangway
