#include "parallel/pipeline/generators.h"

#include <algorithm>
#include <deque>

#include "base/error.h"

namespace gangway {
namespace {

using enum ActionKind;

// Builds the row of one rank. Every stage takes its microbatches in order. Actions for microbatches after the
// last are dropped: a schedule that is written for more microbatches leaves gaps in their place.
class RowMaker {
 public:
  // `stages` are the stages of this rank, in the order of the model. Chunk i is the i-th of them.
  RowMaker(const std::vector<int>& stages, int microbatches) : microbatches_(microbatches) {
    for (const int stage : stages) chunks_.push_back({stage, 0, 0, {}});
  }

  void add_forward(int chunk, int times = 1) {
    for (int i = 0; i < times; ++i) add(chunk, forward, at(chunk).forwards++);
  }
  void add_backward(int chunk, int times = 1) {
    for (int i = 0; i < times; ++i) add(chunk, backward, at(chunk).backwards++);
  }
  void add_input_gradient(int chunk) {
    at(chunk).waiting.push_back(at(chunk).backwards);
    add(chunk, input_gradient, at(chunk).backwards++);
  }
  // Adds the weight half of the oldest input gradient that has none yet.
  void add_weight_gradient(int chunk) {
    add(chunk, weight_gradient, at(chunk).waiting.front());
    at(chunk).waiting.pop_front();
  }
  // Adds a forward and a backward that run together. If one of them is dropped, the other is added alone.
  void add_fused(int forward_chunk, int backward_chunk) {
    const size_t before = row_.size();
    add_forward(forward_chunk);
    add_backward(backward_chunk);
    if (row_.size() == before + 2) row_[before].fused_next = true;
  }
  int forwards(int chunk) { return at(chunk).forwards; }
  bool weight_waits(int chunk) { return !at(chunk).waiting.empty(); }
  ScheduleRow take() { return std::move(row_); }

 private:
  struct Chunk {
    int stage = 0;
    int forwards = 0, backwards = 0;
    std::deque<int> waiting;  // microbatches whose weight half is still to come
  };
  Chunk& at(int chunk) { return chunks_[static_cast<size_t>(chunk)]; }
  void add(int chunk, ActionKind kind, int microbatch) {
    if (microbatch < microbatches_) row_.push_back({at(chunk).stage, kind, microbatch});
  }

  const int microbatches_;
  std::vector<Chunk> chunks_;
  ScheduleRow row_;
};

std::vector<int> stages_of(const Schedule& schedule, int rank) {
  std::vector<int> out;
  for (int stage = 0; stage < schedule.stages(); ++stage)
    if (schedule.stage_rank[static_cast<size_t>(stage)] == rank) out.push_back(stage);
  return out;
}

struct PipelineShape {
  int ranks, microbatches, chunks;  // P, M, v
};

// Runs all microbatches of one stage, then those of the next. With one stage per rank this is GPipe.
ScheduleRow looped_bfs(RowMaker row, int, const PipelineShape& s) {
  for (int c = 0; c < s.chunks; ++c) row.add_forward(c, s.microbatches);
  for (int c = s.chunks - 1; c >= 0; --c) row.add_backward(c, s.microbatches);
  return row.take();
}

// Interleaved 1F1B and ZB1P differ in the warm-up and in how a backward is split.
struct Interleaving {
  int warm_up = 0;
  bool split = false;  // a backward is an I, and a W `delay` backwards later
  int delay = 0;
};

ScheduleRow interleaved(RowMaker row, const PipelineShape& s, const Interleaving& how) {
  const int rounds = std::max(1, s.microbatches / s.ranks);
  const int group = s.microbatches / rounds;  // microbatches that one stage runs in succession
  const int total = s.microbatches * s.chunks;
  const auto forward_chunk = [&](int k) { return k / group % s.chunks; };
  const auto backward_chunk = [&](int k) { return s.chunks - 1 - forward_chunk(k); };
  const int warm_up = std::min(how.warm_up, total);
  int weights = 0;
  for (int k = 0; k < warm_up; ++k) row.add_forward(forward_chunk(k));
  for (int k = 0; k < total; ++k) {
    if (warm_up + k < total) row.add_forward(forward_chunk(warm_up + k));
    how.split ? row.add_input_gradient(backward_chunk(k)) : row.add_backward(backward_chunk(k));
    if (how.split && k >= how.delay) row.add_weight_gradient(backward_chunk(weights++));
  }
  while (how.split && weights < total) row.add_weight_gradient(backward_chunk(weights++));
  return row.take();
}

ScheduleRow one_f_one_b(RowMaker row, int rank, const PipelineShape& s) {
  const int group = s.microbatches / std::max(1, s.microbatches / s.ranks);
  const int ahead = s.chunks == 1 ? s.ranks - 1 - rank : (s.chunks - 1) * group + 2 * (s.ranks - 1 - rank);
  return interleaved(std::move(row), s, {.warm_up = ahead});
}

ScheduleRow zb_h1(RowMaker row, int rank, const PipelineShape& s) {
  const int group = s.microbatches / std::max(1, s.microbatches / s.ranks);
  return interleaved(std::move(row), s,
                     {.warm_up = (s.chunks - 1) * group + s.ranks - 1 - rank, .split = true, .delay = rank});
}

// 2 (P - r) - 1 forwards come before the first backward, one more than the warm-up.
ScheduleRow zb_h2(RowMaker row, int rank, const PipelineShape& s) {
  return interleaved(std::move(row), s,
                     {.warm_up = 2 * (s.ranks - rank) - 2, .split = true, .delay = 2 * rank});
}

ScheduleRow zbv(RowMaker row, int rank, const PipelineShape& s) {
  const int below = s.ranks - rank;
  const int n = std::max(s.microbatches, 2 * s.ranks - 1);
  const auto backward_of = [&](int chunk) {
    row.add_input_gradient(chunk);
    row.add_weight_gradient(chunk);
  };
  row.add_forward(0, 2 * below - 1);
  for (int i = 0; i < rank; ++i) {
    row.add_forward(1);
    row.add_forward(0);
  }
  for (int i = 0; i < below; ++i) {
    row.add_forward(1);
    backward_of(1);
  }
  while (row.forwards(1) < row.forwards(0) || row.forwards(0) < n) {
    if (row.forwards(0) < n) row.add_forward(0);
    backward_of(0);
    row.add_forward(1);
    backward_of(1);
  }
  for (int i = 0; i < rank; ++i) {
    row.add_input_gradient(0);
    row.add_input_gradient(1);
  }
  for (int i = 0; i < below; ++i) backward_of(0);
  for (const int chunk : {1, 0})
    while (row.weight_waits(chunk)) row.add_weight_gradient(chunk);
  return row.take();
}

ScheduleRow dualpipev(RowMaker row, int rank, const PipelineShape& s) {
  const int below = s.ranks - 1 - rank;
  std::deque<int> weights;  // chunks whose weight half is still to come
  const auto input_half = [&](int chunk) {
    row.add_input_gradient(chunk);
    weights.push_back(chunk);
  };
  const auto weight_half = [&] {
    row.add_weight_gradient(weights.front());
    weights.pop_front();
  };
  row.add_forward(0, 2 * below);
  for (int i = 0; i < rank + 1; ++i) {
    row.add_forward(0);
    row.add_forward(1);
  }
  for (int i = 0; i < below; ++i) {
    input_half(1);
    weight_half();
    row.add_forward(1);
  }
  for (int i = 0; i < s.microbatches - 2 * s.ranks + rank + 1; ++i) {
    if (i == 0 && below == 0) {
      row.add_forward(0);
      row.add_backward(1);
    } else {
      row.add_fused(0, 1);
    }
    row.add_fused(1, 0);
  }
  for (int i = 0; i < below; ++i) {
    row.add_backward(1);
    row.add_fused(1, 0);
  }
  // The second half of these backwards postpones its weight halves to the end of the row.
  bool split = false;
  for (int i = 0; i < rank + 1; ++i) {
    const bool middle = i == (rank + 1) / 2;
    if (middle && rank % 2 == 1) split = true;
    split ? input_half(1) : row.add_backward(1);
    if (middle && rank % 2 == 0) split = true;
    split ? input_half(0) : row.add_backward(0);
  }
  for (int i = 0; i < below; ++i) {
    weight_half();
    input_half(0);
  }
  while (!weights.empty()) weight_half();
  return row.take();
}

struct Builtin {
  const char* name;
  int chunks;    // default number of stages per rank
  bool one;      // allows one stage per rank
  bool several;  // allows several stages per rank (exactly `chunks` if `v` is set)
  bool v;        // the stages lie in a V
  bool grouped;  // with several stages per rank M must be a multiple of max(1, M / P)
  int least;     // the least number of microbatches, as a multiple of P
  ScheduleRow (*make)(RowMaker, int rank, const PipelineShape&);
};

constexpr Builtin kBuiltins[] = {
    {"gpipe", 1, true, false, false, false, 0, looped_bfs},
    {"1f1b", 1, true, false, false, false, 0, one_f_one_b},
    {"interleaved-1f1b", 2, false, true, false, true, 0, one_f_one_b},
    {"looped-bfs", 2, true, true, false, false, 0, looped_bfs},
    {"zb-h1", 1, true, true, false, true, 0, zb_h1},
    {"zb-h2", 1, true, false, false, false, 0, zb_h2},
    {"zbv", 2, false, true, true, false, 0, zbv},
    {"dualpipev", 2, false, true, true, false, 2, dualpipev},
};

const Builtin& find(std::string_view name) {
  for (const Builtin& b : kBuiltins)
    if (name == b.name) return b;
  std::string known;
  for (const Builtin& b : kBuiltins) known += (known.empty() ? "" : ", ") + std::string(b.name);
  fail(Code::invalid_argument, "schedule: \"", name, "\" is unknown; known are ", known);
}

void check(const Builtin& b, const PipelineShape& s) {
  if (s.ranks < 1 || s.microbatches < 1)
    fail(Code::invalid_argument, "schedule ", b.name, ": ", s.ranks, " ranks and ", s.microbatches,
         " microbatches; both must be at least 1");
  const bool fits = s.chunks == 1 ? b.one : s.chunks > 1 && b.several && (!b.v || s.chunks == 2);
  if (!fits)
    fail(Code::invalid_argument, "schedule ", b.name, ": ", s.chunks, " stages a rank; it takes ",
         b.v          ? "2"
         : !b.several ? "1"
         : b.one      ? "1 or more"
                      : "2 or more");
  const int rounds = std::max(1, s.microbatches / s.ranks);
  if (b.grouped && s.chunks > 1 && s.microbatches % rounds != 0)
    fail(Code::invalid_argument, "schedule ", b.name, ": ", s.microbatches, " microbatches over ", s.ranks,
         " ranks go in ", rounds, " rounds, which must divide the microbatches");
  if (s.microbatches < b.least * s.ranks)
    fail(Code::invalid_argument, "schedule ", b.name, ": ", s.microbatches, " microbatches; ", s.ranks,
         " ranks need at least ", b.least * s.ranks);
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> out;
  for (const Builtin& b : kBuiltins) out.emplace_back(b.name);
  return out;
}

Schedule make_schedule(std::string_view name, const ScheduleOptions& options) {
  const Builtin& b = find(name);
  const PipelineShape s{options.ranks, options.microbatches,
                        options.stages_per_rank == 0 ? b.chunks : options.stages_per_rank};
  check(b, s);
  Schedule schedule;
  schedule.name = b.name;
  schedule.microbatches = s.microbatches;
  schedule.stage_rank = b.v ? v_stages(s.ranks) : loop_stages(s.ranks, s.chunks);
  for (int rank = 0; rank < s.ranks; ++rank)
    schedule.rows.push_back(b.make(RowMaker(stages_of(schedule, rank), s.microbatches), rank, s));
  return schedule;
}

}  // namespace gangway
