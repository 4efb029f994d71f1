#include "train/whole_batch.h"

#include <cstring>
#include <iterator>
#include <map>

#include "gang/agreement.h"
#include "tensor/host_staging.h"
#include "tensor/host_view.h"

namespace gangway {
namespace {

// A field of a batch that holds tensors. An optional tensor is read as a list of zero or one tensors.
struct List {
  const char* name;
  std::vector<Tensor> (*of)(const Batch& batch);
  bool on_host;
};
std::vector<Tensor> if_given(const Tensor& tensor) {
  return tensor ? std::vector<Tensor>{tensor} : std::vector<Tensor>{};
}
const List kLists[] = {
    {"batch.inputs", [](const Batch& b) { return b.inputs; }, false},
    {"batch.targets", [](const Batch& b) { return b.targets; }, false},
    {"batch.documents", [](const Batch& b) { return if_given(b.documents); }, true},
    {"batch.positions", [](const Batch& b) { return if_given(b.positions); }, true},
    {"batch.token_weights", [](const Batch& b) { return if_given(b.token_weights); }, false},
};
enum ListIndex : size_t { kInputs, kTargets, kDocuments, kPositions, kTokenWeights };

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
  std::vector<std::vector<Piece>> lists;  // as kLists
};

class Reader {
 public:
  explicit Reader(const std::string& text) : at_(text.data()) {}
  Pieces read() {
    Pieces batch{number(), number(), number(), {}};
    for (size_t i = 0; i < std::size(kLists); ++i) batch.lists.push_back(pieces());
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

// Joins tensor `index` of a list of every batch along dim 0.
Tensor join(const std::vector<const Piece*>& pieces, const List& list, size_t index, Device& device) {
  Piece first = *pieces[0];
  if (first.dims.empty())
    fail(Code::invalid_argument, "verify: tensor ", index, " of ", list.name, " has no dim of rows");
  int64_t rows = 0;
  for (const Piece* piece : pieces) {
    Piece same = *piece;
    if (!same.dims.empty()) same.dims[0] = first.dims[0];
    if (same.dtype != first.dtype || same.dims != first.dims)
      fail(Code::invalid_argument, "verify: tensor ", index, " of ", list.name,
           " has another dtype, or other dims than its rows, on some ranks");
    rows += piece->dims[0];
  }
  first.dims[0] = rows;
  const auto memory = list.on_host ? device.pinned_allocator() : device.allocator();
  const Tensor whole = Tensor::allocate(memory, first.dtype, Shape(std::span<const int64_t>(first.dims)));
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

std::vector<Tensor> join_all(const std::vector<Pieces>& batches, ListIndex which, Device& device) {
  const List& list = kLists[which];
  const size_t count = batches[0].lists[which].size();
  for (const Pieces& batch : batches)
    if (batch.lists[which].size() != count)
      fail(Code::invalid_argument, "verify: ranks gave ", count, " and ", batch.lists[which].size(),
           " tensors as ", list.name, "; the number must be the same on all ranks");
  std::vector<Tensor> all;
  for (size_t i = 0; i < count; ++i) {
    std::vector<const Piece*> pieces;
    for (const Pieces& batch : batches) pieces.push_back(&batch.lists[which][i]);
    all.push_back(join(pieces, list, i, device));
  }
  return all;
}
Tensor join_one(const std::vector<Pieces>& batches, ListIndex which, Device& device) {
  const std::vector<Tensor> all = join_all(batches, which, device);
  return all.empty() ? Tensor() : all[0];
}

// Returns the weight of the joined batch; -1 if every rank gave that.
int64_t joined_weight(const std::vector<Pieces>& batches) {
  int64_t sum = 0;
  size_t counted = 0;
  for (const Pieces& batch : batches) {
    counted += batch.weight < 0 ? 1 : 0;
    sum += batch.weight;
  }
  if (counted == batches.size()) return -1;
  if (counted != 0)
    fail(Code::invalid_argument, "verify: some ranks gave batch.weight = -1, and others a number");
  return sum;
}

}  // namespace

std::vector<std::string> gather_batches(Gangs& gangs, const Batch& batch, Stream& stream) {
  int index = 0, count = 1;
  gangs.data_shard(&index, &count);
  Writer own;
  own.number(index);
  own.number(batch.weight);
  own.number(batch.shift_labels ? 1 : 0);
  for (const List& list : kLists) own.tensors(list.of(batch), stream);
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
  for (const Pieces& batch : all)
    if (batch.shift != all[0].shift)
      fail(Code::invalid_argument, "verify: some ranks gave batch.shift_labels = 1, and others 0");
  Batch whole;
  whole.weight = joined_weight(all);
  whole.shift_labels = all[0].shift != 0;
  whole.inputs = join_all(all, kInputs, device);
  whole.targets = join_all(all, kTargets, device);
  whole.documents = join_one(all, kDocuments, device);
  whole.positions = join_one(all, kPositions, device);
  whole.token_weights = join_one(all, kTokenWeights, device);
  return whole;
}

}  // namespace gangway
