// Schedules have the values and formulas of their papers, and the checker finds every mistake in a schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "parallel/pipeline/checker.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/generators.h"

namespace gangway {
namespace {

using test::error_of;

// Expects INVALID_ARGUMENT with these words in its text.
template <typename Call>
void expect_refusal(const std::string& words, Call&& call) {
  const Error error = error_of(call);
  EXPECT_EQ(error.code(), Code::invalid_argument) << error.message();
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

struct Case {
  const char* name;
  int ranks, microbatches, chunks;
  double makespan;  // when each rank takes 1 for a forward and 1 for each half of a backward
};

Schedule make(const Case& c) { return make_schedule(c.name, {c.ranks, c.microbatches, c.chunks}); }
ScheduleReport unit_report(const Schedule& s) { return simulate(s, unit_costs(s)); }

class ScheduleValues : public testing::TestWithParam<Case> {};

TEST_P(ScheduleValues, HaveThePublishedMakespan) {
  const Schedule schedule = make(GetParam());
  check_schedule(schedule);
  EXPECT_DOUBLE_EQ(unit_report(schedule).makespan, GetParam().makespan);
}

INSTANTIATE_TEST_SUITE_P(FourRanksEightMicrobatches, ScheduleValues,
                         testing::Values(Case{"gpipe", 4, 8, 1, 33}, Case{"1f1b", 4, 8, 1, 33},
                                         Case{"interleaved-1f1b", 4, 8, 2, 28.5},
                                         Case{"interleaved-1f1b", 4, 8, 4, 26.25}, Case{"zb-h1", 4, 8, 1, 27},
                                         Case{"zb-h1", 4, 8, 2, 25.5}, Case{"zb-h2", 4, 8, 1, 27},
                                         Case{"zbv", 4, 8, 2, 25.5}));
INSTANTIATE_TEST_SUITE_P(FourRanksFourMicrobatches, ScheduleValues,
                         testing::Values(Case{"gpipe", 4, 4, 1, 21}, Case{"1f1b", 4, 4, 1, 21},
                                         Case{"interleaved-1f1b", 4, 4, 2, 16.5},
                                         Case{"interleaved-1f1b", 4, 4, 4, 14.25}, Case{"zb-h1", 4, 4, 1, 15},
                                         Case{"zb-h1", 4, 4, 2, 13.5}, Case{"zb-h2", 4, 4, 1, 16},
                                         Case{"zbv", 4, 4, 2, 15}));
INSTANTIATE_TEST_SUITE_P(EightRanksSixteenMicrobatches, ScheduleValues,
                         testing::Values(Case{"gpipe", 8, 16, 1, 69}, Case{"1f1b", 8, 16, 1, 69},
                                         Case{"interleaved-1f1b", 8, 16, 2, 58.5},
                                         Case{"interleaved-1f1b", 8, 16, 4, 53.25},
                                         Case{"zb-h1", 8, 16, 1, 55}, Case{"zb-h1", 8, 16, 2, 51.5},
                                         Case{"zb-h2", 8, 16, 1, 55}, Case{"zbv", 8, 16, 2, 51.5}));
INSTANTIATE_TEST_SUITE_P(TwoRanksFourMicrobatches, ScheduleValues,
                         testing::Values(Case{"gpipe", 2, 4, 1, 15}, Case{"1f1b", 2, 4, 1, 15},
                                         Case{"interleaved-1f1b", 2, 4, 2, 13.5},
                                         Case{"interleaved-1f1b", 2, 4, 4, 12.75}, Case{"zb-h1", 2, 4, 1, 13},
                                         Case{"zb-h1", 2, 4, 2, 12.5}, Case{"zb-h2", 2, 4, 1, 13},
                                         Case{"zbv", 2, 4, 2, 12.5}));
INSTANTIATE_TEST_SUITE_P(FewerMicrobatchesThanRanks, ScheduleValues,
                         testing::Values(Case{"1f1b", 4, 2, 1, 15}, Case{"1f1b", 4, 3, 1, 18}));

std::vector<int> peaks(const Schedule& schedule) {
  std::vector<int> out;
  for (const RankReport& rank : unit_report(schedule).ranks) out.push_back(rank.peak_activations);
  return out;
}

// M is `m`, r is `r` and P is `p` in the table of formulas.
TEST(Schedules, KeepTheActivationsOfTheirFormula) {
  for (const int p : {1, 2, 3, 4, 8})
    for (const int m : {1, 2, 3, 5, 8, 16, 32}) {
      for (int r = 0; r < p; ++r) {
        const auto at = static_cast<size_t>(r);
        EXPECT_EQ(peaks(make_schedule("gpipe", {p, m, 1}))[at], m);
        EXPECT_EQ(peaks(make_schedule("1f1b", {p, m, 1}))[at], std::min(m, p - r))
            << p << " " << m << " " << r;
        EXPECT_EQ(peaks(make_schedule("zb-h1", {p, m, 1}))[at], std::min(m, p));
        if (m >= 2 * p - 1) {
          EXPECT_EQ(peaks(make_schedule("zb-h2", {p, m, 1}))[at], 2 * p - 1);
        }
        if (m >= 2 * p - 1) {
          EXPECT_EQ(peaks(make_schedule("zbv", {p, m, 2}))[at], 2 * p) << p << " " << m << " " << r;
        }
        if (m >= 2 * p) {
          EXPECT_EQ(peaks(make_schedule("dualpipev", {p, m, 2}))[at], 2 * p + 1) << p << " " << m;
        }
        for (const int v : {2, 3, 4}) {
          const int rounds = std::max(1, m / p);
          if (m % rounds != 0) continue;
          const int group = m / rounds;
          EXPECT_EQ(peaks(make_schedule("interleaved-1f1b", {p, m, v}))[at],
                    std::min(m * v, (v - 1) * group + 2 * (p - 1 - r) + 1));
        }
      }
    }
}

TEST(Schedules, OneFOneBKeepsLessOnLaterRanksWithFewMicrobatches) {
  EXPECT_EQ(peaks(make_schedule("1f1b", {4, 2, 1})), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(peaks(make_schedule("1f1b", {4, 3, 1})), (std::vector<int>{3, 3, 2, 1}));
}

TEST(Schedules, HaveTheWindowBubbleOfTheirFormula) {
  for (const int p : {2, 4, 8}) {
    const int m = 2 * p;
    const auto windows = [&](const char* name, int v) {
      double most = 0;
      for (const RankReport& rank : unit_report(make_schedule(name, {p, m, v})).ranks)
        most = std::max(most, rank.window_bubble());
      return most;
    };
    EXPECT_DOUBLE_EQ(windows("gpipe", 1), (p - 1) * 3.0);
    EXPECT_DOUBLE_EQ(windows("1f1b", 1), (p - 1) * 3.0);
    for (const int v : {2, 4}) EXPECT_DOUBLE_EQ(windows("interleaved-1f1b", v), (p - 1) * 3.0 / v);
    EXPECT_DOUBLE_EQ(windows("zb-h1", 1), p - 1.0);
    EXPECT_NEAR(windows("zb-h2", 1), 0, 1e-12);
    EXPECT_NEAR(windows("zbv", 2), 0, 1e-12);
  }
}

std::vector<Schedule> all_schedules(int most_ranks, int most_microbatches) {
  std::vector<Schedule> out;
  for (const std::string& name : schedule_names())
    for (int p = 1; p <= most_ranks; ++p)
      for (int m = 1; m <= most_microbatches; ++m)
        for (int v = 1; v <= 4; ++v) {
          try {
            out.push_back(make_schedule(name, {p, m, v}));
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Code::invalid_argument);
          }
        }
  return out;
}

TEST(Schedules, OfAllSizesPassTheCheckerWithEveryTransport) {
  size_t checked = 0;
  for (const Schedule& schedule : all_schedules(8, 32)) {
    ASSERT_NO_THROW(check_schedule(schedule)) << schedule.name << "\n" << to_csv(schedule);
    const Schedule whole = with_fsdp(with_communication(schedule));
    for (const Transport transport : {Transport::asynchronous, Transport::buffered, Transport::rendezvous})
      ASSERT_NO_THROW(check_schedule(whole, transport)) << schedule.name << "\n" << to_csv(whole);
    ++checked;
  }
  EXPECT_GT(checked, 3400u);
}

TEST(Schedules, TakeNoLongerWhenSendsAreWrittenOut) {
  for (const Schedule& schedule : all_schedules(4, 9))
    EXPECT_DOUBLE_EQ(unit_report(with_fsdp(with_communication(schedule))).makespan,
                     unit_report(schedule).makespan)
        << schedule.name;
}

TEST(Schedules, KeepMicrobatchesInOrderOnEveryStage) {
  for (const Schedule& schedule : all_schedules(4, 16))
    for (const ScheduleRow& row : schedule.rows) {
      std::vector<int> forwards(static_cast<size_t>(schedule.stages()), -1), weights = forwards;
      for (const Action& a : row) {
        auto& last = a.kind == ActionKind::forward ? forwards : weights;
        if (a.kind == ActionKind::input_gradient) continue;
        EXPECT_EQ(a.microbatch, ++last[static_cast<size_t>(a.stage)]) << schedule.name;
      }
    }
}

TEST(Schedules, AreTheSameAfterCsv) {
  for (const Schedule& schedule : all_schedules(5, 12)) {
    const Schedule whole = with_fsdp(with_communication(schedule));
    const Schedule read = schedule_from_csv(to_csv(whole));
    EXPECT_EQ(read.rows, whole.rows);
    EXPECT_EQ(read.stage_rank, whole.stage_rank);
    EXPECT_EQ(read.microbatches, whole.microbatches);
  }
}

TEST(Schedules, WithFsdpHoldAtMostThreeStagesUnsharded) {
  for (const Schedule& schedule : all_schedules(4, 9))
    for (const int most : {schedule.name == "dualpipev" ? 2 : 1, 2, 3})
      for (const RankReport& rank : unit_report(with_fsdp(schedule, most)).ranks)
        EXPECT_LE(rank.peak_unsharded, most) << schedule.name;
}

TEST(Schedules, WhoseStagesRunInPairsNeedTwoStagesUnsharded) {
  const Schedule schedule = make_schedule("dualpipev", {2, 4, 2});
  expect_refusal(
      "schedule dualpipev: at most 1 stage of a rank is to be unsharded at a time, but rank 0 runs 0F3 and "
      "3B1 together, which needs at least 2 (shard_actions; in Python most_unsharded)",
      [&] { with_fsdp(schedule, 1); });
  Schedule own = schedule;
  own.name.clear();
  expect_refusal("schedule: at most 1 stage", [&] { with_fsdp(own, 1); });
  check_schedule(with_fsdp(schedule, 2));
}

// The checker finds every mistake of one action, at every place.
TEST(Checker, RefusesAScheduleWithOneActionRemovedOrDoubled) {
  for (const char* name : {"1f1b", "zb-h1", "zbv", "dualpipev"}) {
    const Schedule good = with_fsdp(with_communication(make_schedule(name, {3, 6, 0})));
    for (size_t r = 0; r < good.rows.size(); ++r)
      for (size_t i = 0; i < good.rows[r].size(); ++i) {
        Schedule removed = good, doubled = good;
        removed.rows[r].erase(removed.rows[r].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_THROW(check_schedule(removed), Error) << name << " without " << text_of(good.rows[r][i]);
        doubled.rows[r].insert(doubled.rows[r].begin() + static_cast<std::ptrdiff_t>(i), good.rows[r][i]);
        EXPECT_THROW(check_schedule(doubled), Error) << name << " with two " << text_of(good.rows[r][i]);
      }
  }
}

TEST(Checker, NamesThePlaceOfTwoSwappedActions) {
  Schedule schedule = make_schedule("1f1b", {2, 2, 1});
  std::swap(schedule.rows[1][0], schedule.rows[1][1]);  // 1B0 comes before 1F0
  expect_refusal("schedule: rank 1, action 0 (1B0): comes before its F", [&] { check_schedule(schedule); });
  schedule = with_communication(make_schedule("1f1b", {2, 2, 1}));
  auto& row = schedule.rows[0];
  const auto first = std::find(row.begin(), row.end(), Action{0, ActionKind::send_forward, 0});
  row.erase(first);
  row.insert(std::find(row.begin(), row.end(), Action{0, ActionKind::send_forward, 1}) + 1,
             Action{0, ActionKind::send_forward, 0});
  expect_refusal("message 0 from rank 0 to rank 1 is for 1RECV_F1, but the receiver expects 1RECV_F0",
                 [&] { check_schedule(schedule); });
}

// Receives directly before their use, and blocking sends: what a program without a plan would do.
Schedule naive(const Schedule& schedule) {
  Schedule out = schedule;
  for (size_t r = 0; r < out.rows.size(); ++r) {
    out.rows[r].clear();
    for (const Action& a : schedule.rows[r]) {
      const bool forward = a.kind == ActionKind::forward;
      const bool back = a.kind == ActionKind::backward;
      const int from = forward ? a.stage - 1 : a.stage + 1, to = forward ? a.stage + 1 : a.stage - 1;
      const auto remote = [&](int stage) {
        return (forward || back) && stage >= 0 && stage < schedule.stages() &&
               schedule.stage_rank[static_cast<size_t>(stage)] != static_cast<int>(r);
      };
      if (remote(from))
        out.rows[r].push_back(
            {a.stage, forward ? ActionKind::recv_forward : ActionKind::recv_backward, a.microbatch});
      out.rows[r].push_back(a);
      if (remote(to))
        out.rows[r].push_back(
            {a.stage, forward ? ActionKind::send_forward : ActionKind::send_backward, a.microbatch});
    }
  }
  return out;
}

TEST(Checker, FindsThatNaiveBlockingSendsOf1F1BWaitForOneAnother) {
  const Schedule one = naive(make_schedule("1f1b", {4, 8, 1}));
  EXPECT_NO_THROW(check_schedule(one, Transport::buffered));
  expect_refusal("ranks wait for one another", [&] { check_schedule(one, Transport::rendezvous); });
  EXPECT_NO_THROW(check_schedule(naive(make_schedule("gpipe", {4, 8, 1})), Transport::rendezvous));
}

TEST(Checker, CountsBytesFromForwardToWeightHalf) {
  const Schedule schedule = make_schedule("zb-h1", {4, 8, 1});
  std::vector<StageCost> costs(4);
  for (StageCost& cost : costs) cost = {1, 1, 1, 100, 10};
  const ScheduleReport report = simulate(schedule, costs);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(report.ranks[static_cast<size_t>(r)].peak_activation_bytes, 400);
    EXPECT_EQ(report.ranks[static_cast<size_t>(r)].peak_weight_inputs, r + 1);
    EXPECT_EQ(report.ranks[static_cast<size_t>(r)].peak_weight_input_bytes, 10.0 * (r + 1));
  }
}

TEST(Schedules, RefuseWhatTheyCannotBe) {
  const auto refuses = [](const char* name, ScheduleOptions options, const char* words) {
    expect_refusal(words, [&] { make_schedule(name, options); });
  };
  refuses("1f1c", {2, 2, 1}, "\"1f1c\" is unknown; known are gpipe, 1f1b");
  refuses("1f1b", {0, 2, 1}, "0 ranks and 2 microbatches; both must be at least 1");
  refuses("1f1b", {2, 2, 2}, "2 stages a rank; it takes 1");
  refuses("zbv", {2, 2, 3}, "3 stages a rank; it takes 2");
  refuses("interleaved-1f1b", {4, 9, 2}, "9 microbatches over 4 ranks go in 2 rounds");
  refuses("dualpipev", {4, 7, 2}, "7 microbatches; 4 ranks need at least 8");
}

TEST(ScheduleCsv, RefusesHostileTextWithItsPlace) {
  const auto refuses = [](const char* text, const char* words) {
    expect_refusal(words, [&] { schedule_from_csv(text); });
  };
  refuses("", "no row computes anything");
  refuses("0F0,0B0\n1F0,F", "row 1, cell 1: \"F\" does not start with a stage's number");
  refuses("0F0,0X0", "row 0, cell 1: \"0X0\" names no action");
  refuses("0F", "does not end with a microbatch's number");
  refuses("0F99999999999999999999", "does not end with a microbatch's number");
  refuses("0F0 0B0", "has something behind it");
  refuses("0F0&0W0", "is no fused pair");
  refuses("0F0,0B0\n0F1,0B1", "stage 0 is computed in rows 0 and 1");
  refuses("2F0,2B0", "no row computes stage 0");
  refuses("0F0,0B0\n,,", "row 1 has no action");
  refuses("0F1000000,0B1000000", "1 forwards; 1 stages and microbatches up to 1000000 need 1000001");
}

}  // namespace
}  // namespace gangway
