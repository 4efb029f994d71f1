// The built-in schedules. They hold computations only (F, B, I, W); communication.h adds the rest.
//
// Sources: GPipe (Huang et al. 2019); 1F1B (PipeDream-Flush) and interleaved 1F1B (Narayanan et al. 2021); looped
// breadth-first (Lamy-Poirier 2023); ZB-H1, ZB-H2 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"); ZBV (Qi et al.
// 2024, "Pipeline Parallelism with Controllable Memory"); DualPipeV (DeepSeek 2025, "cut in half" DualPipe).
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace gangway {

struct ScheduleOptions {
  int ranks = 1;         // P
  int microbatches = 1;  // M
  int stages_per_rank =
      0;  // v; 0: the schedule's own (2 for interleaved, looped-bfs, zbv and dualpipev, else 1)
};

// The names that make_schedule takes.
std::vector<std::string> schedule_names();

// gpipe, 1f1b, interleaved-1f1b, looped-bfs, zb-h1 (zb1p with several stages a rank), zb-h2, zbv, dualpipev.
// INVALID_ARGUMENT: an unknown name (the text lists all), a number below 1, stages a rank that the schedule cannot have,
// and the schedule's own rule: interleaved and zb1p want M to be a multiple of the number of rounds max(1, M / P);
// dualpipev wants M >= 2 P. Fewer microbatches than ranks are legal everywhere else.
Schedule make_schedule(std::string_view name, const ScheduleOptions& options);

}  // namespace gangway
