// The built-in schedules. They consist of computations only (F, B, I, W); communication.h adds the other
// actions.
//
// Sources: GPipe (Huang et al. 2019); 1F1B (PipeDream-Flush) and interleaved 1F1B (Narayanan et al. 2021);
// looped breadth-first (Lamy-Poirier 2023); ZB-H1, ZB-H2 (Qi et al. 2023, "Zero Bubble Pipeline
// Parallelism"); ZBV (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"); DualPipeV (DeepSeek
// 2025, "cut in half" DualPipe).
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
  // v. 0: the schedule's own number, which is 2 for interleaved-1f1b, looped-bfs, zbv and dualpipev, and 1
  // for the others.
  int stages_per_rank = 0;
};

// The names that make_schedule takes.
std::vector<std::string> schedule_names();

// The names are gpipe, 1f1b, interleaved-1f1b, looped-bfs, zb-h1 (with several stages per rank it is ZB1P),
// zb-h2, zbv and dualpipev. INVALID_ARGUMENT: an unknown name (the text lists all names), a number below 1, a
// number of stages per rank that the schedule does not allow, or a number of microbatches that it does not
// allow. Interleaved 1F1B and ZB1P want M to be a multiple of the number of rounds max(1, M / P), and
// dualpipev wants M >= 2 P. All other schedules also allow fewer microbatches than ranks.
Schedule make_schedule(std::string_view name, const ScheduleOptions& options);

}  // namespace gangway
