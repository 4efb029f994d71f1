#include "nn/ids.h"

#include <algorithm>

#include "nn/gradient.h"
#include "tensor/host_view.h"

namespace gangway {
namespace {

void check_range(const IdRule& rule, const IdRange& found) {
  if (found.count == 0 || (found.lowest >= 0 && found.highest < rule.size)) return;
  const std::string ignored =
      rule.ignore == IdRule::kNone ? "" : text(", or ", rule.ignore, " for a label that does not count");
  fail(Code::invalid_argument, rule.what, " ", found.lowest < 0 ? found.lowest : found.highest,
       " is outside the vocabulary of ", rule.size, " (0 to ", rule.size - 1, ignored, ")");
}

}  // namespace

PendingIdCheck start_id_check(Context& ctx, std::span<const IdRule> rules, std::span<const Tensor> values) {
  PendingIdCheck check{std::vector<IdRule>(values.size()), {}};
  int64_t count = 0;
  for (size_t i = 0; i < std::min(rules.size(), values.size()); ++i) {
    if (rules[i].what == nullptr || !values[i] || values[i].dtype() != DType::i64) continue;
    check.rules[i] = rules[i];
    ++count;
  }
  if (count == 0) return check;
  const Tensor found = ctx.temporaries.allocate(DType::i64, Shape{count, 3});
  if (on_meta(ctx)) return check;  // after the allocation, so that a memory plan counts it
  check.found = found;
  int64_t row = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (check.rules[i].what == nullptr) continue;
    ctx.ops.id_range(values[i].reshape(Shape{values[i].count()}), check.rules[i].ignore,
                     check.found.slice(0, row, row + 1).reshape(Shape{3}), ctx.stream);
    ++row;
  }
  return check;
}

std::vector<IdRange> finish_id_check(const PendingIdCheck& check, const Tensor& found) {
  std::vector<IdRange> all(check.rules.size());
  if (!check.found) return all;
  const int64_t* at = found.data<int64_t>();
  for (size_t i = 0; i < all.size(); ++i) {
    if (check.rules[i].what == nullptr) continue;
    all[i] = {at[0], at[1], at[2]};
    at += 3;
    if (check.rules[i].size >= 0) check_range(check.rules[i], all[i]);
  }
  return all;
}

std::vector<IdRange> check_ids(Context& ctx, std::span<const IdRule> rules, std::span<const Tensor> values) {
  const StackScope scope(ctx.temporaries);
  const PendingIdCheck check = start_id_check(ctx, rules, values);
  return finish_id_check(check, check.found ? read_on_host(check.found, ctx.stream) : Tensor());
}

}  // namespace gangway
