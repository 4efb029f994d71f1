// A pipeline schedule as data: for each rank the list of actions that it does, in order. Pure data: it knows no module
// and no gang. generators.h makes the built-in schedules, communication.h adds sends, receives and FSDP's actions,
// checker.h proves a schedule and predicts its time and memory.
//
// Terms. A stage is a part of the model; a rank runs one or more stages. F: forward. B: the whole backward. I and W:
// its two halves, the gradient of the input and of the weights. SEND_F and RECV_F move a stage's output to the next
// stage, SEND_B and RECV_B the gradient of a stage's input to the stage before.
//
// Text of an action: stage, kind, microbatch ("2F0", "0SEND_B3"), a fused pair "0F1&3B0", and without microbatch
// "1UNSHARD", "1RESHARD", "1REDUCE_GRAD". A CSV file has one row for each rank.
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
bool has_microbatch(ActionKind kind) noexcept;  // all but the three of FSDP

struct Action {
  int stage = 0;
  ActionKind kind = ActionKind::forward;
  int microbatch = -1;      // -1 for the kinds without one
  bool fused_next = false;  // runs together with the next action of its row: "F&B"

  bool operator==(const Action&) const = default;
};
std::string text_of(const Action& action);  // "2F0", without a fused partner

using ScheduleRow = std::vector<Action>;

struct Schedule {
  std::string name;  // "1f1b"; empty for one that was read
  int microbatches = 0;
  std::vector<int> stage_rank;  // the rank that runs each stage
  std::vector<ScheduleRow> rows;

  int ranks() const { return static_cast<int>(rows.size()); }
  int stages() const { return static_cast<int>(stage_rank.size()); }
};

// Where a stage runs: "loop" is stage s on rank s mod P; "v" goes down the ranks and up again (two stages a rank).
std::vector<int> loop_stages(int ranks, int stages_per_rank);
std::vector<int> v_stages(int ranks);

// One line for each rank, cells separated by commas.
std::string to_csv(const Schedule& schedule);
// Stages, their ranks and the number of microbatches follow from the forwards. INVALID_ARGUMENT names the row, the cell
// and what is wrong with it: an unknown action, a number out of range, a stage on two ranks, a stage without forward.
Schedule schedule_from_csv(std::string_view text);

}  // namespace gangway
