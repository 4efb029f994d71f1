// Checks a pipeline schedule before it runs, and predicts its time and memory.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace gangway {

// The cost of one microbatch on one stage. Times are in any one unit of time. A whole backward takes input +
// weight.
struct StageCost {
  double forward = 1, input = 1, weight = 1;
  double activation_bytes = 0;    // saved from F until the end of B or W
  double weight_input_bytes = 0;  // x and dy of the products, kept from I until W
};
// The costs with which each rank takes 1 unit of time for the forwards of a microbatch and 1 for each half of
// its backwards, however many stages the rank runs.
std::vector<StageCost> unit_costs(const Schedule& schedule);

// How a send and its receive wait for each other.
enum class Transport : uint8_t {
  asynchronous,  // neither blocks; the computation that uses the data waits for it
  buffered,      // a receive blocks until its send has started
  rendezvous,    // both block until both ranks have reached them
};

// When an action ran. Both actions of a fused pair have the same times.
struct ActionSpan {
  double start = 0, end = 0;
};

struct RankReport {
  double busy = 0;             // time spent in computations
  double first = 0, last = 0;  // start of the first computation, end of the last one
  double window_bubble() const { return last - first - busy; }
  // largest number of pairs of microbatch and stage between F and the end of B or W
  int peak_activations = 0;
  double peak_activation_bytes = 0;
  int peak_weight_inputs = 0;  // the same between I and W
  double peak_weight_input_bytes = 0;
  int peak_unsharded = 0;         // largest number of unsharded stages; 0 without UNSHARD
  std::vector<ActionSpan> spans;  // one for each action of the row
};

struct ScheduleReport {
  double makespan = 0;
  std::vector<RankReport> ranks;
  // The share of the ranks' time in which they compute nothing, from 0 to 1.
  double bubble() const;
};

// Throws INVALID_ARGUMENT, with the rank and the action, unless all of these hold:
// - Every stage runs each microbatch forward once and then backward once, as B, or as I and then W.
// - There are no sends and receives at all, or all that are needed. For each pair of ranks they match in
//   number and in order. A send comes after the computation whose output it sends, a receive before the
//   computation that uses it.
// - There are no FSDP actions at all, or F, B and I find their stage unsharded, and REDUCE_GRAD comes once,
//   after the last weight half of the stage.
// - No rank waits for ever with `transport`.
void check_schedule(const Schedule& schedule, Transport transport = Transport::asynchronous);

// Simulates a checked schedule. `costs` has one entry for each stage; `transfer` is the time from a send to
// its arrival. INVALID_ARGUMENT: ranks wait for one another; the text names what each of them waits for.
ScheduleReport simulate(const Schedule& schedule, std::span<const StageCost> costs,
                        Transport transport = Transport::asynchronous, double transfer = 0);

}  // namespace gangway
