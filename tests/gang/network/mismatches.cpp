#include "gang/network/mismatches.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"

namespace gangway::test {
namespace {

constexpr size_t kShort = 3, kLong = 30'000;  // of f32: below and above what goes between hosts in two levels
constexpr int64_t kToldMs = 10'000;

struct Call {
  CollectiveOp op = CollectiveOp::barrier;
  size_t count = 0;
  DType dtype = DType::f32;
  Reduce reduce = Reduce::none;
  int root = -1;
  std::vector<size_t> counts = {};
};

struct Difference {
  const char* name;
  Call all, odd;
};

// Of a gang of at least two ranks.
std::vector<Difference> differences(int size, int odd) {
  using enum CollectiveOp;
  const auto ranks = static_cast<size_t>(size), it = static_cast<size_t>(odd);
  const int other = (odd + 1) % size, third = (odd + 2) % size;
  std::vector<size_t> equal(ranks, kLong), swapped = equal, without_odd(ranks, kShort),
                                           with_odd = without_odd;
  equal[0] += 8;
  swapped[std::min<size_t>(3, ranks - 1)] += 8;  // one rank may hand both blocks on to a third rank
  without_odd[it] = 0;
  with_odd[it] = kShort;
  const Call sum{all_reduce, kLong, DType::f32, Reduce::sum};
  return {
      {"the op of a barrier", {barrier}, {broadcast, kLong, DType::f32, Reduce::none, 0}},
      {"the op of a broadcast", {broadcast, kLong, DType::f32, Reduce::none, other}, {barrier}},
      {"the op of a sum", sum, {all_gather, kLong}},
      {"the op of a sum's parts", {reduce_scatter, kLong, DType::f32, Reduce::sum}, {all_gather, kLong}},
      {"the op of a gather", {gather, kShort, DType::f32, Reduce::none, other}, {all_gather, kShort}},
      {"gather and scatter",
       {gather, kShort, DType::f32, Reduce::none, other},
       {scatter, kShort, DType::f32, Reduce::none, other}},
      {"a long sum's count", sum, {all_reduce, kLong + 1, DType::f32, Reduce::sum}},
      {"a short sum's count",
       {all_reduce, kShort, DType::f32, Reduce::sum},
       {all_reduce, kShort + 1, DType::f32, Reduce::sum}},
      {"a long and a short sum", sum, {all_reduce, kShort, DType::f32, Reduce::sum}},
      {"a sum of nothing", sum, {all_reduce, 0, DType::f32, Reduce::sum}},
      {"a sum with nothing", {all_reduce, 0, DType::f32, Reduce::sum}, sum},
      {"a broadcast's type",
       {broadcast, kLong, DType::f32, Reduce::none, other},
       {broadcast, kLong, DType::i32, Reduce::none, other}},
      {"the root of a broadcast",
       {broadcast, kLong, DType::f32, Reduce::none, other},
       {broadcast, kLong, DType::f32, Reduce::none, odd}},
      {"a broadcast of a third rank",
       {broadcast, kLong, DType::f32, Reduce::none, other},
       {broadcast, kLong, DType::f32, Reduce::none, third}},
      {"the root of a sum",
       {reduce, kShort, DType::f32, Reduce::sum, other},
       {reduce, kShort, DType::f32, Reduce::sum, odd}},
      {"sum and max", sum, {all_reduce, kLong, DType::f32, Reduce::max}},
      {"the counts of an all_gather",
       {all_gather, 0, DType::f32, Reduce::none, -1, equal},
       {all_gather, 0, DType::f32, Reduce::none, -1, swapped}},
      {"a gather without the odd rank",
       {gather, 0, DType::f32, Reduce::none, other, with_odd},
       {gather, 0, DType::f32, Reduce::none, other, without_odd}},
      {"a gather with the odd rank",
       {gather, 0, DType::f32, Reduce::none, other, without_odd},
       {gather, 0, DType::f32, Reduce::none, other, with_odd}},
  };
}

void make(Gang& gang, const Call& call) {
  const size_t elements = (kLong + 8) * static_cast<size_t>(gang.size()) + 8;
  std::vector<float> in(elements, 1), out(elements);
  Collective c;
  c.op = call.op;
  c.in = in.data();
  c.out = out.data();
  c.count = call.count;
  c.counts = call.counts.empty() ? nullptr : call.counts.data();
  c.dtype = call.dtype;
  c.reduce = call.reduce;
  c.peer = call.root;
  gang.run_now(Channel::user, c);
}

void expect_mismatch(const Error& error, const char* kind) {
  if (error.code() != Code::mismatch || error.message().find(" meets ") == std::string::npos)
    fail(Code::internal, "of ", kind, " this rank was told: ", error.message());
}

void try_one(Gang& gang, const Difference& one, int odd) {
  try {
    make(gang, gang.rank() == odd ? one.odd : one.all);
  } catch (const Error& error) {
    return expect_mismatch(error, one.name);
  }
  // This rank's part may have ended before another one met the odd rank.
  const Deadline deadline = Deadline::after_ms(kToldMs);
  while (!gang.error()) {
    if (deadline.passed()) fail(Code::internal, "of ", one.name, " by rank ", odd, " this rank was not told");
    usleep(200);
  }
  expect_mismatch(*gang.error(), one.name);
}

}  // namespace

void every_mismatch_is_told(Gang& root) {
  for (int odd = 0; odd < root.size(); ++odd)
    for (const Difference& one : differences(root.size(), odd)) try_one(*root.duplicate(one.name), one, odd);
}

}  // namespace gangway::test
