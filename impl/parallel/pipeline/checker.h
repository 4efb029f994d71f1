// Proves a schedule before it runs, and says what it costs.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace gangway {

// What one microbatch costs on one stage. Times are in any one unit; a whole backward takes input + weight.
struct StageCost {
  double forward = 1, input = 1, weight = 1;
  double activation_bytes = 0;    // saved from F until B or W
  double weight_input_bytes = 0;  // x and dy of the products, kept from I until W
};
// Each rank has 1 unit of work for a forward and 1 for each half of a backward, however many stages it runs.
std::vector<StageCost> unit_costs(const Schedule& schedule);

// How a send and its receive meet.
enum class Transport : uint8_t {
  asynchronous,  // both are started at their place; the use of what arrives waits
  buffered,      // a receive blocks until its send has started
  rendezvous,    // send and receive block until both are reached
};

// When an action ran. A fused pair has the same times twice.
struct ActionSpan {
  double start = 0, end = 0;
};

struct RankReport {
  double busy = 0;             // time in computations
  double first = 0, last = 0;  // start of the first computation, end of the last one
  double window_bubble() const { return last - first - busy; }
  int peak_activations = 0;  // microbatches times stages between F and the end of B or W
  double peak_activation_bytes = 0;
  int peak_weight_inputs = 0;  // likewise between I and W
  double peak_weight_input_bytes = 0;
  int peak_unsharded = 0;         // stages whose weights are unsharded; 0 without UNSHARD
  std::vector<ActionSpan> spans;  // of each action of the row
};

struct ScheduleReport {
  double makespan = 0;
  std::vector<RankReport> ranks;
  // The part of the ranks' time in which they compute nothing, 0 to 1.
  double bubble() const;
};

// INVALID_ARGUMENT with the place, unless every stage has each microbatch forward once and backward once (B, or I and
// then W, after F); sends and receives (none at all, or all of them) match in number and in order for each pair of ranks
// and come after and before the computations that they serve; F, B and I find their stage unsharded, and REDUCE_GRAD
// comes once, after the stage's last weight half (no FSDP action at all is legal, too); and no rank waits for ever with
// any Transport that the schedule is meant for.
void check_schedule(const Schedule& schedule, Transport transport = Transport::asynchronous);

// Runs the checked schedule on a clock. `costs`: one for each stage. `transfer`: time from a send to the arrival.
// INVALID_ARGUMENT when ranks wait for one another; the text has what each of them waits for.
ScheduleReport simulate(const Schedule& schedule, std::span<const StageCost> costs,
                        Transport transport = Transport::asynchronous, double transfer = 0);

}  // namespace gangway
