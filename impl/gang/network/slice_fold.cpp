#include "gang/network/slice_fold.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gang/kernels/fold.h"

namespace gangway::network {
namespace {

constexpr size_t kBlock = 4096;  // elements folded at a time

void load(float* to, const void* from, size_t n, DType dtype) {
  if (dtype == DType::bf16) {
    const auto* const x = static_cast<const bf16_t*>(from);
    for (size_t i = 0; i < n; ++i) to[i] = to_f32(x[i]);
  } else {
    const auto* const x = static_cast<const f16_t*>(from);
    for (size_t i = 0; i < n; ++i) to[i] = to_f32(x[i]);
  }
}

void store(void* to, const float* from, size_t n, DType dtype) {
  if (dtype == DType::bf16) {
    auto* const x = static_cast<bf16_t*>(to);
    for (size_t i = 0; i < n; ++i) x[i] = to_bf16(from[i]);
  } else {
    auto* const x = static_cast<f16_t*>(to);
    for (size_t i = 0; i < n; ++i) x[i] = to_f16(from[i]);
  }
}

template <typename T>
void divide(void* values, size_t n, int divisor) {
  T* const x = static_cast<T*>(values);
  for (size_t i = 0; i < n; ++i) x[i] /= static_cast<T>(divisor);
}

}  // namespace

bool is_narrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }
DType folded_type(DType dtype) { return is_narrow(dtype) ? DType::f32 : dtype; }

SliceFold::SliceFold(const Collective& c, int ranks, size_t count, const FoldResult& result)
    : dtype_(c.dtype),
      type_(folded_type(c.dtype)),
      reduce_(c.reduce),
      ranks_(ranks),
      count_(count),
      result_(result) {}

void SliceFold::add_own(const char* at) {
  Input& one = inputs_.emplace_back();
  one.at = at;
  one.item = item_bytes(dtype_);
  one.came = one.good = count_;
}

int SliceFold::add_arriving(char* beside, bool is_prefix) {
  Input& one = inputs_.emplace_back();
  one.at = one.beside = beside;
  one.item = item_bytes(is_prefix ? type_ : dtype_);
  has_prefix_ = has_prefix_ || is_prefix;
  return static_cast<int>(inputs_.size()) - 1;
}

void SliceFold::begin() {
  in_.resize(inputs_.size());
  if (converts()) wide_.resize((inputs_.size() + 1) * kBlock);
  for (const Input& one : inputs_)
    if (one.beside != nullptr) return;
  fold(0, count_, 0, inputs_[0].at);
}

void SliceFold::take(int input, const char* bytes, size_t count) {
  Input& one = inputs_[static_cast<size_t>(input)];
  // The bytes of a bad chunk were taken, too, so a peer that goes on after one could send more than fits.
  count = std::min(count, (count_ - one.came) * one.item - one.part_bytes);
  if (one.part_bytes != 0) {
    const size_t more = std::min(count, one.item - one.part_bytes);
    std::memcpy(one.part + one.part_bytes, bytes, more);
    one.part_bytes += more;
    bytes += more, count -= more;
    if (one.part_bytes != one.item) return;
    one.part_bytes = 0;
    take_elements(static_cast<size_t>(input), one.part, 1);
  }
  const size_t whole = count / one.item;
  take_elements(static_cast<size_t>(input), bytes, whole);
  one.part_bytes = count - whole * one.item;
  std::memcpy(one.part, bytes + whole * one.item, one.part_bytes);
}

// Folds the elements that all other inputs have already. Keeps the rest, which is folded when the input that
// is the last to have them brings them.
void SliceFold::take_elements(size_t input, const char* from, size_t count) {
  Input& one = inputs_[input];
  size_t others = count_;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (i != input) others = std::min(others, inputs_[i].came);
  const size_t now = std::min(count, others > one.came ? others - one.came : 0);
  if (now != 0) fold(one.came, now, input, from);
  if (now != count)
    std::memcpy(one.beside + (one.came + now) * one.item, from + now * one.item, (count - now) * one.item);
  one.came += count;
}

void SliceFold::confirm(int input, size_t bytes) {
  Input& one = inputs_[static_cast<size_t>(input)];
  one.good = bytes / one.item;
}

size_t SliceFold::ready_bytes() const {
  size_t good = count_;
  for (const Input& one : inputs_) good = std::min(good, one.good);
  return good * item_bytes(result_.is_final ? dtype_ : type_);
}

// Folds `count` elements from `first` on. Those of the input `arriving` lie at `from`, whose address may not
// be that of an element. The result may overlap an input, so each block is folded beside it.
void SliceFold::fold(size_t first, size_t count, size_t arriving, const char* from) {
  alignas(64) double folded[kBlock], aligned[kBlock];  // of any type: no element is larger
  const size_t item = item_bytes(result_.is_final ? dtype_ : type_), width = inputs_[arriving].item;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = std::min(kBlock, count - at);
    for (size_t i = 0; i < inputs_.size(); ++i) in_[i] = inputs_[i].at + (first + at) * inputs_[i].item;
    in_[arriving] = from + at * width;
    if (reinterpret_cast<uintptr_t>(from) % width != 0)
      in_[arriving] = std::memcpy(aligned, from + at * width, n * width);
    fold_block(n, folded);
    char* const to = result_.to + (first + at) * item;
    if (result_.accumulate)
      host::fold_kernels().add(to, folded, n, dtype_);
    else
      std::memcpy(to, folded, n * item);
  }
}

// Folds what in_ points to. Where ranks before or after have a part in it, a mean is divided once, at the
// end, and a narrow type is rounded once.
void SliceFold::fold_block(size_t count, void* out) {
  host::FoldArgs args;
  args.in = in_.data();
  args.ranks = static_cast<int>(in_.size());
  args.count = count;
  args.out = out;
  args.dtype = dtype_;
  args.reduce = reduce_;
  if (!has_prefix_ && result_.is_final) return host::fold_kernels().fold(args);
  args.dtype = type_;
  if (reduce_ == Reduce::mean) args.reduce = Reduce::sum;
  float* const rounded_later = converts() && result_.is_final ? &wide_[inputs_.size() * kBlock] : nullptr;
  if (rounded_later != nullptr) args.out = rounded_later;
  if (converts())
    for (size_t i = has_prefix_ ? 1 : 0; i < in_.size(); ++i) {
      load(&wide_[i * kBlock], in_[i], count, dtype_);
      in_[i] = &wide_[i * kBlock];
    }
  host::fold_kernels().fold(args);
  if (result_.is_final && reduce_ == Reduce::mean)
    type_ == DType::f64 ? divide<double>(args.out, count, ranks_) : divide<float>(args.out, count, ranks_);
  if (rounded_later != nullptr) store(out, rounded_later, count, dtype_);
}

}  // namespace gangway::network
