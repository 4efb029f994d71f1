#include "parallel/pipeline/schedule.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "base/line.h"

namespace gangway {
namespace {

constexpr int kMostStages = 1 << 16;
constexpr int kMostMicrobatches = 1 << 20;
constexpr size_t kMostRows = 1 << 16;

constexpr std::array<const char*, 11> kTexts = {
    "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};

// Takes the number at the start of `text` off it. Returns -1 if there is none in [0, most).
int take_number(std::string_view& text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0 || value >= most) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

[[noreturn]] void refuse_cell(size_t row, size_t cell, std::string_view text, const char* why) {
  fail(Code::invalid_argument, "schedule: row ", row, ", cell ", cell, ": \"", text, "\" ", why);
}

Action parse_action(std::string_view text, size_t row, size_t cell) {
  std::string_view rest = text;
  Action action;
  action.stage = take_number(rest, kMostStages);
  if (action.stage < 0) refuse_cell(row, cell, text, "does not start with a stage's number");
  const std::string_view word = rest.substr(0, rest.find_first_of("0123456789"));
  size_t kind = 0;
  while (kind < kTexts.size() && word != kTexts[kind]) ++kind;
  if (kind == kTexts.size())
    refuse_cell(row, cell, text,
                "names no action; known are F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, "
                "REDUCE_GRAD");
  action.kind = static_cast<ActionKind>(kind);
  rest.remove_prefix(word.size());
  if (has_microbatch(action.kind)) {
    action.microbatch = take_number(rest, kMostMicrobatches);
    if (action.microbatch < 0) refuse_cell(row, cell, text, "does not end with a microbatch's number");
  }
  if (!rest.empty()) refuse_cell(row, cell, text, "has something behind it");
  return action;
}

void parse_cell(std::string_view text, size_t row, size_t cell, ScheduleRow& out) {
  const size_t amp = text.find('&');
  if (amp == std::string_view::npos) {
    out.push_back(parse_action(text, row, cell));
    return;
  }
  Action first = parse_action(trimmed(text.substr(0, amp)), row, cell);
  const Action second = parse_action(trimmed(text.substr(amp + 1)), row, cell);
  if (first.kind != ActionKind::forward || second.kind != ActionKind::backward)
    refuse_cell(row, cell, text, "is no fused pair; a pair is a forward and a whole backward, like 0F1&3B0");
  first.fused_next = true;
  out.push_back(first);
  out.push_back(second);
}

ScheduleRow parse_row(std::string_view line, size_t row) {
  ScheduleRow out;
  for (size_t cell = 0; !line.empty(); ++cell) {
    const size_t comma = line.find(',');
    if (const std::string_view text = trimmed(line.substr(0, comma)); !text.empty())
      parse_cell(text, row, cell, out);
    line = comma == std::string_view::npos ? std::string_view() : line.substr(comma + 1);
  }
  return out;
}

void place_stages(Schedule& schedule) {
  size_t forwards = 0;
  for (size_t rank = 0; rank < schedule.rows.size(); ++rank)
    for (const Action& action : schedule.rows[rank]) {
      if (!is_compute(action.kind)) continue;
      forwards += action.kind == ActionKind::forward;
      const auto stage = static_cast<size_t>(action.stage);
      if (schedule.stage_rank.size() <= stage) schedule.stage_rank.resize(stage + 1, -1);
      int& at = schedule.stage_rank[stage];
      if (at >= 0 && at != static_cast<int>(rank))
        fail(Code::invalid_argument, "schedule: stage ", stage, " is computed in rows ", at, " and ", rank,
             "; a stage belongs to one rank");
      at = static_cast<int>(rank);
      schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
    }
  for (size_t stage = 0; stage < schedule.stage_rank.size(); ++stage)
    if (schedule.stage_rank[stage] < 0)
      fail(Code::invalid_argument, "schedule: no row computes stage ", stage, ", but one computes stage ",
           schedule.stage_rank.size() - 1);
  if (schedule.stage_rank.empty()) fail(Code::invalid_argument, "schedule: no row computes anything");
  // This check also bounds the checker's memory by the length of the text.
  if (forwards != schedule.stage_rank.size() * static_cast<size_t>(schedule.microbatches))
    fail(Code::invalid_argument, "schedule: ", forwards, " forwards; ", schedule.stage_rank.size(),
         " stages and microbatches up to ", schedule.microbatches - 1, " need ",
         schedule.stage_rank.size() * static_cast<size_t>(schedule.microbatches));
}

}  // namespace

const char* text_of(ActionKind kind) noexcept { return kTexts[static_cast<size_t>(kind)]; }

bool is_compute(ActionKind kind) noexcept { return kind <= ActionKind::weight_gradient; }
bool is_send(ActionKind kind) noexcept {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
bool is_receive(ActionKind kind) noexcept {
  return kind == ActionKind::recv_forward || kind == ActionKind::recv_backward;
}
bool has_microbatch(ActionKind kind) noexcept { return kind < ActionKind::unshard; }

std::string text_of(const Action& action) {
  const std::string start = std::to_string(action.stage) + text_of(action.kind);
  return has_microbatch(action.kind) ? start + std::to_string(action.microbatch) : start;
}

std::vector<int> loop_stages(int ranks, int stages_per_rank) {
  std::vector<int> out;
  for (int stage = 0; stage < ranks * stages_per_rank; ++stage) out.push_back(stage % ranks);
  return out;
}

std::vector<int> v_stages(int ranks) {
  std::vector<int> out;
  for (int stage = 0; stage < 2 * ranks; ++stage)
    out.push_back(stage < ranks ? stage : 2 * ranks - 1 - stage);
  return out;
}

std::string to_csv(const Schedule& schedule) {
  std::string out;
  for (const ScheduleRow& row : schedule.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i != 0) out += row[i - 1].fused_next ? '&' : ',';
      out += text_of(row[i]);
    }
    out += '\n';
  }
  return out;
}

Schedule schedule_from_csv(std::string_view text) {
  Schedule schedule;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (trimmed(line).empty()) continue;
    if (schedule.rows.size() == kMostRows)
      fail(Code::invalid_argument, "schedule: more than ", kMostRows, " rows");
    schedule.rows.push_back(parse_row(line, schedule.rows.size()));
    if (schedule.rows.back().empty())
      fail(Code::invalid_argument, "schedule: row ", schedule.rows.size() - 1, " has no action");
  }
  place_stages(schedule);
  return schedule;
}

}  // namespace gangway
