#include "train/agreement.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/philox.h"
#include "parallel/or_abort.h"

namespace gangway {
namespace {

// Everybody's `mine`, in rank order.
template <typename T>
std::vector<T> gather(Gang& root, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(root.size()));
  Collective record;
  record.op = CollectiveOp::all_gather;
  record.in = &mine;
  record.out = all.data();
  record.count = sizeof(T);
  record.dtype = DType::u8;
  root.run_now(Channel::control, record);
  return all;
}

struct Vote {
  uint64_t said = 0;  // hash of the arguments
  int64_t refused = 0;
  int64_t weight = 0, tokens = 0;
};

struct OutcomeVote {
  double loss = 0;
  int64_t finite = 1, refused = 0;
};

int coordinate(const Coordinates& at, Axis axis) { return at[static_cast<size_t>(axis)]; }

}  // namespace

Totals agree(Gangs& gangs, const std::optional<Error>& refusal, const std::string& said, const Totals& mine) {
  Gang& root = *gangs.root();
  const Vote vote{philox_key(0, said), refusal.has_value(), mine.weight, mine.tokens};
  const std::vector<Vote> votes = or_abort(gangs, "agree", [&] { return gather(root, vote); });
  // The texts travel only when there is something to tell.
  if (std::any_of(votes.begin(), votes.end(),
                  [&](const Vote& v) { return v.refused != 0 || v.said != votes[0].said; }))
    root.agree(refusal, said);
  Totals sum;
  for (int r = 0; r < root.size(); ++r) {
    const Coordinates at = gangs.mesh().coordinates(r);
    // tp, cp and pp ranks of one data coordinate pass the same batch.
    if (coordinate(at, Axis::tp) != 0 || coordinate(at, Axis::cp) != 0 || coordinate(at, Axis::pp) != 0)
      continue;
    sum.weight += votes[static_cast<size_t>(r)].weight;
    sum.tokens += votes[static_cast<size_t>(r)].tokens;
  }
  return sum;
}

Outcome exchange(Gangs& gangs, const std::optional<Error>& refusal, const Outcome& mine) {
  Gang& root = *gangs.root();
  const OutcomeVote vote{mine.loss, mine.finite, refusal.has_value()};
  const std::vector<OutcomeVote> votes = or_abort(gangs, "exchange", [&] { return gather(root, vote); });
  if (std::any_of(votes.begin(), votes.end(), [](const OutcomeVote& v) { return v.refused != 0; }))
    root.agree(refusal);
  Outcome sum;
  for (int r = 0; r < root.size(); ++r) {
    const OutcomeVote& v = votes[static_cast<size_t>(r)];
    sum.finite = sum.finite && v.finite != 0;
    // A loss is equal over tp; cp ranks hold parts of it, and stages without a head hold 0.
    if (coordinate(gangs.mesh().coordinates(r), Axis::tp) == 0) sum.loss += v.loss;
  }
  return sum;
}

}  // namespace gangway
