#include "gang/network/host_pieces.h"

#include "gang/kernels/fold.h"
#include "tensor/layout.h"

namespace gangway::network {
namespace {

constexpr size_t kLong = 16 << 10;  // bytes of a call that is worth the longer way
constexpr size_t kBlock = 4096;     // elements folded at a time

// The numbers of the parts, so that no two pieces between the same ranks have the same one.
constexpr int kBlockOf = 1;      // + the rank whose block it is, or the slice
constexpr int kFolded = 0x1000;  // + the slice
constexpr int kResult = 0x2000;  // + the slice

bool is_narrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }
DType folded_type(DType dtype) { return is_narrow(dtype) ? DType::f32 : dtype; }

// One step of the fold over hosts.
struct ChainFold {
  Collective c;
  size_t count = 0;
  const char* before = nullptr;     // what the hosts before have folded; null on the first one
  std::vector<const char*> inputs;  // of this host's ranks, in rank order
  char* to = nullptr;
  int divisor = 0;       // of a mean, on the last host
  bool is_last = false;  // rounds the result
};

void load(float* to, const char* from, size_t first, size_t n, DType dtype) {
  if (dtype == DType::bf16) {
    const auto* const x = reinterpret_cast<const bf16_t*>(from) + first;
    for (size_t i = 0; i < n; ++i) to[i] = to_f32(x[i]);
  } else {
    const auto* const x = reinterpret_cast<const f16_t*>(from) + first;
    for (size_t i = 0; i < n; ++i) to[i] = to_f32(x[i]);
  }
}

void store(char* to, const float* from, size_t first, size_t n, DType dtype) {
  if (dtype == DType::bf16) {
    auto* const x = reinterpret_cast<bf16_t*>(to) + first;
    for (size_t i = 0; i < n; ++i) x[i] = to_bf16(from[i]);
  } else {
    auto* const x = reinterpret_cast<f16_t*>(to) + first;
    for (size_t i = 0; i < n; ++i) x[i] = to_f16(from[i]);
  }
}

template <typename T>
void divide(char* values, size_t n, int divisor) {
  T* const x = reinterpret_cast<T*>(values);
  for (size_t i = 0; i < n; ++i) x[i] /= static_cast<T>(divisor);
}

// The result may overlap an input, so each block is folded beside it.
void fold_chain(const ChainFold& f) {
  const DType type = folded_type(f.c.dtype);
  const size_t item = item_bytes(type);
  const bool converts = is_narrow(f.c.dtype);
  std::vector<float> wide(converts ? f.inputs.size() * kBlock : 0);
  std::vector<double> folded(kBlock);  // of any type: no element is larger
  std::vector<const void*> inputs;
  host::FoldArgs args;
  args.dtype = type;
  args.reduce = f.c.reduce == Reduce::mean ? Reduce::sum : f.c.reduce;
  args.out = folded.data();
  char* const block = reinterpret_cast<char*>(folded.data());
  for (size_t at = 0; at < f.count; at += kBlock) {
    const size_t n = std::min(kBlock, f.count - at);
    inputs.clear();
    if (f.before != nullptr) inputs.push_back(f.before + at * item);
    for (size_t r = 0; r < f.inputs.size(); ++r) {
      if (converts) load(&wide[r * kBlock], f.inputs[r], at, n, f.c.dtype);
      inputs.push_back(converts ? static_cast<const void*>(&wide[r * kBlock]) : f.inputs[r] + at * item);
    }
    args.in = inputs.data();
    args.ranks = static_cast<int>(inputs.size());
    args.count = n;
    host::fold_kernels().fold(args);
    if (f.divisor != 0)
      type == DType::f64 ? divide<double>(block, n, f.divisor) : divide<float>(block, n, f.divisor);
    if (converts && f.is_last)
      store(f.to, reinterpret_cast<const float*>(block), at, n, f.c.dtype);
    else
      std::memcpy(f.to + at * item, block, n * item);
  }
}

}  // namespace

bool HostPieces::add_by_hosts() {
  if (!topology_.has_levels()) return false;
  if (c_.op == CollectiveOp::all_reduce && topology_.is_consecutive && c_.count * item_ > kLong) {
    reduce_by_hosts();
    return true;
  }
  if (c_.op == CollectiveOp::broadcast && c_.count * item_ > kLong) {
    broadcast_by_hosts();
    return true;
  }
  if (c_.op != CollectiveOp::all_gather || out_count(c_, rank_, size_) * item_ <= kLong) return false;
  gather_by_hosts();
  return true;
}

void HostPieces::reduce_by_hosts() {
  const std::vector<int64_t> bounds = balanced_bounds(static_cast<int64_t>(c_.count), topology_.rails);
  char* const result = c_.accumulate ? stage(c_.count * item_) : out();
  for (int i = 0; i < topology_.rails; ++i) {
    const auto first = static_cast<size_t>(bounds[static_cast<size_t>(i)]);
    const auto end = static_cast<size_t>(bounds[static_cast<size_t>(i) + 1]);
    if (end != first) reduce_slice(i, first * item_, end - first, result);
  }
  if (c_.accumulate)
    t_->last = [result, c = c_] { host::fold_kernels().add(c.out, result, c.count, c.dtype); };
}

// `first` is the byte at which the slice begins.
void HostPieces::reduce_slice(int i, size_t first, size_t count, char* result) {
  const int own = topology_.host_of(rank_), last = topology_.hosts() - 1, folder = topology_.rail(own, i);
  const size_t bytes = count * item_, folded_bytes = count * item_bytes(folded_type(c_.dtype));
  if (folder != rank_) {
    send(folder, kBlockOf + i, in() + first, bytes);
    take(folder, kResult + i, result + first, bytes);
    return;
  }
  ChainFold fold;
  fold.c = c_;
  fold.count = count;
  fold.is_last = own == last;
  if (own > 0) {
    char* const before = stage(folded_bytes);
    take_to_fold(topology_.rail(own - 1, i), kFolded + i, before, folded_bytes);
    fold.before = before;
  }
  for (const int r : topology_.ranks_on(own)) {
    char* const input = r == rank_ ? nullptr : stage(bytes);
    if (input != nullptr) take_to_fold(r, kBlockOf + i, input, bytes);
    fold.inputs.push_back(input != nullptr ? input : in() + first);
  }
  fold.to = fold.is_last ? result + first : stage(folded_bytes);
  if (fold.is_last && c_.reduce == Reduce::mean) fold.divisor = size_;
  int comes = -1;
  if (fold.is_last) {
    for (int host = 0; host < last; ++host)
      send_when_folded(topology_.rail(host, i), kResult + i, result + first, bytes);
  } else {
    send_when_folded(topology_.rail(own + 1, i), kFolded + i, fold.to, folded_bytes);
    comes = take(topology_.rail(last, i), kResult + i, result + first, bytes);
  }
  for (const int r : topology_.ranks_on(own)) {
    if (r == rank_) continue;
    if (fold.is_last)
      send_when_folded(r, kResult + i, result + first, bytes);
    else
      send(r, kResult + i, result + first, bytes, comes);
  }
  t_->fold = [before = std::move(t_->fold), fold = std::move(fold)] {
    if (before) before();
    fold_chain(fold);
  };
}

void HostPieces::gather_by_hosts() {
  const int own = topology_.host_of(rank_);
  for (int owner = 0; owner < size_; ++owner) {
    const size_t bytes = part(c_.counts, owner);
    char* const to = out() + offset(c_.counts, owner);
    const int number = kBlockOf + owner, home = topology_.host_of(owner), index = topology_.index_of(owner);
    const int relay = topology_.rail(own, index);
    if (owner == rank_) {
      copy(to, in(), bytes);
      for (const int r : topology_.ranks_on(own))
        if (r != rank_) send(r, number, in(), bytes);
      for (int host = 0; host < topology_.hosts(); ++host)
        if (host != own) send(topology_.rail(host, index), number, in(), bytes);
    } else if (home == own || relay != rank_) {
      take(home == own ? owner : relay, number, to, bytes);
    } else {
      const int comes = take(owner, number, to, bytes);
      for (const int r : topology_.ranks_on(own))
        if (r != rank_) send(r, number, to, bytes, comes);
    }
  }
}

void HostPieces::broadcast_by_hosts() {
  const int own = topology_.host_of(rank_), home = topology_.host_of(c_.peer);
  const size_t bytes = c_.count * item_;
  if (rank_ == c_.peer) copy(out(), in(), bytes);
  for (int host = 0; host < topology_.hosts(); ++host) {
    if (host != own && rank_ != c_.peer) continue;
    const std::vector<int>& ranks = topology_.ranks_on(host);
    if (host == home) {
      for (const int r : ranks)
        if (rank_ == c_.peer && r != rank_) send(r, kBlockOf, in(), bytes);
      if (rank_ != c_.peer) take(c_.peer, kBlockOf, out(), bytes);
      continue;
    }
    const std::vector<int64_t> bounds =
        balanced_bounds(static_cast<int64_t>(c_.count), static_cast<int64_t>(ranks.size()));
    for (size_t i = 0; i < ranks.size(); ++i) {
      const size_t first = static_cast<size_t>(bounds[i]) * item_;
      const size_t some = static_cast<size_t>(bounds[i + 1]) * item_ - first;
      const int number = kBlockOf + static_cast<int>(i);
      if (rank_ == c_.peer) {
        send(ranks[i], number, in() + first, some);
      } else if (ranks[i] != rank_) {
        take(ranks[i], number, out() + first, some);
      } else {
        const int comes = take(c_.peer, number, out() + first, some);
        for (const int r : ranks)
          if (r != rank_) send(r, number, out() + first, some, comes);
      }
    }
  }
}

}  // namespace gangway::network
