#include "nn/ids.h"

#include <algorithm>

#include "nn/gradient.h"
#include "tensor/host_view.h"

namespace gangway {
namespace {

void check_range(const IdRule& rule, const FoundIds& found) {
  if (found.count == 0 || (found.lowest >= 0 && found.highest < rule.size)) return;
  const std::string ignored =
      rule.ignore == IdRule::kNone ? "" : text(", or ", rule.ignore, " for a label that does not count");
  fail(Code::invalid_argument, rule.what, " ", found.lowest < 0 ? found.lowest : found.highest,
       " is outside the vocabulary of ", rule.size, " (0 to ", rule.size - 1, ignored, ")");
}

}  // namespace

std::vector<FoundIds> check_ids(Context& ctx, std::span<const IdRule> rules, std::span<const Tensor> values) {
  std::vector<FoundIds> all(values.size());
  const size_t known = std::min(rules.size(), values.size());
  const auto looked_at = [&](size_t i) {
    return rules[i].what != nullptr && values[i] && values[i].dtype() == DType::i64;
  };
  size_t count = 0;
  for (size_t i = 0; i < known; ++i) count += looked_at(i) ? 1 : 0;
  if (count == 0 || on_meta(ctx)) return all;

  const StackScope scope(ctx.temporaries);
  const Tensor found = ctx.temporaries.allocate(DType::i64, Shape{static_cast<int64_t>(count), 3});
  int64_t row = 0;
  for (size_t i = 0; i < known; ++i) {
    if (!looked_at(i)) continue;
    ctx.ops.id_range(values[i].reshape(Shape{values[i].count()}), rules[i].ignore,
                     found.slice(0, row, row + 1).reshape(Shape{3}), ctx.stream);
    ++row;
  }
  const HostView<int64_t> host(found, ctx.stream);
  const int64_t* at = host.begin();
  for (size_t i = 0; i < known; ++i) {
    if (!looked_at(i)) continue;
    all[i] = {at[0], at[1], at[2]};
    at += 3;
    if (rules[i].size >= 0) check_range(rules[i], all[i]);
  }
  return all;
}

}  // namespace gangway
