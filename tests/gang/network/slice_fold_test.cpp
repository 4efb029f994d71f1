// Folds of inputs that arrive in pieces, in any order, from addresses that are those of no element.
#include "gang/network/slice_fold.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gang/kernels/fold.h"

namespace gangway::network {
namespace {

using Bytes = std::vector<char>;
constexpr int kRanks = 3;

Collective reduction(DType dtype, Reduce reduce) {
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.dtype = dtype;
  c.reduce = reduce;
  return c;
}

// Values whose sums are rounded, also in the narrow types.
Bytes random_input(DType dtype, size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> values(-100, 100);
  Bytes bytes(count * item_bytes(dtype));
  for (size_t i = 0; i < count; ++i) {
    const auto put = [&](auto value) { std::memcpy(&bytes[i * sizeof value], &value, sizeof value); };
    if (dtype == DType::f32) put(values(random));
    if (dtype == DType::f64) put(static_cast<double>(values(random)) / 3);
    if (dtype == DType::bf16) put(to_bf16(values(random)));
    if (dtype == DType::f16) put(to_f16(values(random)));
    if (dtype == DType::i32) put(static_cast<int32_t>(random()));
    if (dtype == DType::u8) put(static_cast<uint8_t>(random()));
  }
  return bytes;
}

Bytes folded_at_once(const Collective& c, const std::vector<Bytes>& inputs, size_t count) {
  Bytes out(inputs[0].size());
  std::vector<const void*> in;
  for (const Bytes& one : inputs) in.push_back(one.data());
  host::FoldArgs args;
  args.in = in.data();
  args.ranks = static_cast<int>(in.size());
  args.count = count;
  args.out = out.data();
  args.dtype = c.dtype;
  args.reduce = c.reduce;
  host::fold_kernels().fold(args);
  return out;
}

struct Arrival {
  SliceFold* fold;
  int input;
  const Bytes* bytes;
  size_t have = 0;
};

// Brings all inputs, in pieces of random lengths that take turns at random.
void arrive(std::vector<Arrival> arrivals, std::mt19937& random, size_t most) {
  while (!arrivals.empty()) {
    const size_t which = random() % arrivals.size();
    Arrival& one = arrivals[which];
    const size_t bytes = std::min(one.bytes->size() - one.have, 1 + random() % most);
    Bytes moved(bytes + 1);
    std::memcpy(moved.data() + 1, one.bytes->data() + one.have, bytes);
    one.fold->take(one.input, moved.data() + 1, bytes);
    one.have += bytes;
    one.fold->confirm(one.input, one.have);
    if (one.have == one.bytes->size()) arrivals.erase(arrivals.begin() + static_cast<int64_t>(which));
  }
}

class Fold : public testing::TestWithParam<DType> {};

TEST_P(Fold, OfInputsThatArriveInPiecesHasTheBitsOfAWholeFold) {
  std::mt19937 random(7);
  for (const Reduce reduce : {Reduce::sum, Reduce::max, Reduce::mean})
    for (const size_t count : {size_t{1}, size_t{7}, size_t{4097}, size_t{20'001}})
      for (int own = 0; own < kRanks; ++own) {
        if (reduce == Reduce::mean && (GetParam() == DType::i32 || GetParam() == DType::u8)) continue;
        const Collective c = reduction(GetParam(), reduce);
        std::vector<Bytes> inputs;
        for (int r = 0; r < kRanks; ++r) inputs.push_back(random_input(GetParam(), count, random));
        const Bytes expected = folded_at_once(c, inputs, count);
        Bytes result = inputs[static_cast<size_t>(own)];  // in place
        std::vector<Bytes> beside(kRanks, Bytes(result.size()));
        SliceFold fold(c, kRanks, count, {result.data()});
        std::vector<Arrival> arrivals;
        for (int r = 0; r < kRanks; ++r) {
          const auto at = static_cast<size_t>(r);
          if (r == own)
            fold.add_own(result.data());
          else
            arrivals.push_back({&fold, fold.add_arriving(beside[at].data()), &inputs[at]});
        }
        fold.begin();
        EXPECT_EQ(fold.ready_bytes(), 0u);
        arrive(arrivals, random, 5 * count);
        EXPECT_EQ(fold.ready_bytes(), result.size());
        EXPECT_TRUE(result == expected) << count << " elements, own input " << own;
      }
}

TEST_P(Fold, OntoAPrefixHasTheBitsOfAWholeFold) {
  std::mt19937 random(8);
  const DType dtype = GetParam();
  for (const Reduce reduce : {Reduce::sum, Reduce::mean})
    for (const size_t count : {size_t{1}, size_t{4097}}) {
      if (reduce == Reduce::mean && (dtype == DType::i32 || dtype == DType::u8)) continue;
      const Collective c = reduction(dtype, reduce);
      std::vector<Bytes> inputs;
      for (int r = 0; r < kRanks; ++r) inputs.push_back(random_input(dtype, count, random));
      Bytes prefix(count * item_bytes(folded_type(dtype))), result(inputs[0].size()), beside[3];
      for (Bytes& one : beside) one.resize(prefix.size());
      SliceFold first(c, kRanks, count, {prefix.data(), /*is_final=*/false});
      first.add_own(inputs[0].data());
      const int second = first.add_arriving(beside[0].data());
      first.begin();
      arrive({{&first, second, &inputs[1]}}, random, 1000);
      EXPECT_EQ(first.ready_bytes(), prefix.size());
      SliceFold last(c, kRanks, count, {result.data()});
      const int before = last.add_arriving(beside[1].data(), /*is_prefix=*/true);
      const int third = last.add_arriving(beside[2].data());
      last.begin();
      arrive({{&last, before, &prefix}, {&last, third, &inputs[2]}}, random, 1000);
      EXPECT_TRUE(result == folded_at_once(c, inputs, count)) << count << " elements";
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Fold,
                         testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32,
                                         DType::u8),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(SliceFold, WithoutAnArrivingInputIsMadeAtOnce) {
  std::vector<float> own = {1, 2, 3}, result(3);
  SliceFold fold(reduction(DType::f32, Reduce::sum), 1, 3, {reinterpret_cast<char*>(result.data())});
  fold.add_own(reinterpret_cast<const char*>(own.data()));
  fold.begin();
  EXPECT_EQ(result, own);
  EXPECT_EQ(fold.ready_bytes(), 12u);
}

TEST(SliceFold, TakesNoMoreThanItsElements) {
  std::vector<float> own = {1}, result = {0, 42}, more = {5, 6, 7}, beside(1);
  SliceFold fold(reduction(DType::f32, Reduce::sum), 2, 1, {reinterpret_cast<char*>(result.data())});
  fold.add_own(reinterpret_cast<const char*>(own.data()));
  const int input = fold.add_arriving(reinterpret_cast<char*>(beside.data()));
  fold.begin();
  fold.take(input, reinterpret_cast<const char*>(more.data()), 12);
  fold.take(input, reinterpret_cast<const char*>(more.data()), 12);
  EXPECT_EQ(result, (std::vector<float>{6, 42}));
  EXPECT_EQ(fold.ready_bytes(), 0u) << "nothing is confirmed";
}

}  // namespace
}  // namespace gangway::network
