// A pipeline schedule as data: the list of actions of each rank, in order. It depends on no module and no
// gang. generators.h makes the built-in schedules, communication.h adds sends, receives and FSDP's actions,
// and checker.h checks a schedule and predicts its time and memory.
//
// Terms. A stage is a part of the model; a rank runs one or more stages. F is a forward, B a whole backward.
// I and W are its two halves: the gradient of the inputs and the gradient of the weights. SEND_F and RECV_F
// move a stage's output to the next stage; SEND_B and RECV_B move the gradient of a stage's input to the
// previous stage.
//
// The text of an action is stage, kind and microbatch ("2F0", "0SEND_B3"). The text of a fused pair is
// "0F1&3B0". FSDP's actions have no microbatch: "1UNSHARD", "1RESHARD", "1REDUCE_GRAD". A CSV file has one
// row for each rank.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gangway {

enum class ActionKind : uint8_t {
  forward,
  backward,
  input_gradient,
  weight_gradient,
  send_forward,
  recv_forward,
  send_backward,
  recv_backward,
  unshard,
  reshard,
  reduce_grad,
};
const char* text_of(ActionKind kind) noexcept;  // "F", "SEND_B"

bool is_compute(ActionKind kind) noexcept;      // F, B, I, W
bool is_send(ActionKind kind) noexcept;         // SEND_F, SEND_B
bool is_receive(ActionKind kind) noexcept;      // RECV_F, RECV_B
bool has_microbatch(ActionKind kind) noexcept;  // all but the three actions of FSDP

struct Action {
  int stage = 0;
  ActionKind kind = ActionKind::forward;
  int microbatch = -1;      // -1: the kind has none
  bool fused_next = false;  // runs together with the next action of its row: "F&B"

  bool operator==(const Action&) const = default;
};
std::string text_of(const Action& action);  // such as "2F0"; a fused partner is not part of it

using ScheduleRow = std::vector<Action>;

struct Schedule {
  std::string name;  // such as "1f1b"; empty if the schedule was read from CSV
  int microbatches = 0;
  std::vector<int> stage_rank;  // the rank that runs each stage
  std::vector<ScheduleRow> rows;

  int ranks() const { return static_cast<int>(rows.size()); }
  int stages() const { return static_cast<int>(stage_rank.size()); }
};

// The rank of each stage. In a loop, rank s mod P runs stage s. In a V, the stages go down the ranks and up
// again, two stages per rank.
std::vector<int> loop_stages(int ranks, int stages_per_rank);
std::vector<int> v_stages(int ranks);

// One line for each rank, with cells separated by commas.
std::string to_csv(const Schedule& schedule);
// Finds the stages, their ranks and the number of microbatches from the computations. INVALID_ARGUMENT, with
// the row, the cell and the reason: an unknown action, a number out of range, a stage on two ranks, a stage
// without forwards.
Schedule schedule_from_csv(std::string_view text);

}  // namespace gangway
