#include "tools/trace_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_scalars.h"
#include "base/new_file.h"

namespace gangway {
namespace {

using Kind = JsonValue::Kind;

// Calls `each` with every event: a line, without its comma. Skips a line that a killed process left
// half-written.
template <typename Each>
void for_each_line(const std::string& path, Each&& each) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(Code::io, "cannot read ", path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == ',') line.pop_back();
    if (line.size() < 2 || line.front() != '{') continue;
    if (file.eof() && !is_json(line)) return;
    if (line.find('\0') != std::string::npos) fail(Code::corrupt, path, " has a zero byte");
    each(line);
  }
}

constexpr int64_t kMostRanks = 1 << 20;  // as many as a gang may have (gang/rendezvous/startup.cpp)

// Says what a member of an event is, and what is wrong with it.
[[noreturn]] void refuse(const std::string& path, const char* member, const JsonValue* value,
                         const std::string& why) {
  fail(Code::invalid_argument, path, " is no trace of a rank: \"", member, "\" is ",
       value != nullptr ? value->display() : "missing", why);
}

// The members of an event lie in its object "args", or (`object` is null) in the event itself.
const JsonValue* member_of(const JsonScalars& event, const char* object, const char* member) {
  return object == nullptr ? find_scalar(event, member) : find_scalar(event, object, member);
}

// Returns a member of an event that must be an integer from `lowest` to `highest`. The bounds are those of
// what the tools loop over and allocate by.
int integer(const JsonScalars& event, const char* object, const char* member, int64_t lowest, int64_t highest,
            const std::string& path) {
  const JsonValue* const found = member_of(event, object, member);
  if (found == nullptr || found->kind != Kind::integer || found->integer < lowest || found->integer > highest)
    refuse(path, member, found, text(", not an integer from ", lowest, " to ", highest));
  return static_cast<int>(found->integer);
}

// Returns a time of an event, which is in microseconds, in nanoseconds.
int64_t nanoseconds(const JsonScalars& event, const char* member, const std::string& path) {
  constexpr double kMost = 1e15;  // 30 years; sums of two times stay far from the end of int64_t
  const JsonValue* const found = find_scalar(event, member);
  if (found == nullptr || !found->is_number() || !(std::abs(found->real) <= kMost))
    refuse(path, member, found, " microseconds");
  return std::llround(found->real * 1000);
}

const std::string& words(const JsonScalars& event, const char* object, const char* member,
                         const std::string& path) {
  const JsonValue* const found = member_of(event, object, member);
  if (found == nullptr || found->kind != Kind::text) refuse(path, member, found, ", not a text");
  return found->text;
}

// Returns an empty path for an empty file, as a rank that ended too early leaves it.
RankFile described(const std::string& path) {
  RankFile found;
  if (std::filesystem::file_size(path) == 0) return found;
  for_each_line(path, [&](const std::string& line) {
    if (!found.path.empty()) return;
    const JsonScalars event = find_json_scalars(line).value_or(JsonScalars());
    const JsonValue *const name = find_scalar(event, "name"), *const run = find_scalar(event, "args", "run");
    if (name == nullptr || name->text != "process_name")
      fail(Code::invalid_argument, path, " is no trace of a rank");
    found = {integer(event, nullptr, "pid", 0, kMostRanks - 1, path),
             integer(event, "args", "ranks", 1, kMostRanks, path), run != nullptr ? run->text : "", path};
  });
  if (found.path.empty()) fail(Code::invalid_argument, path, " is no trace of a rank");
  return found;
}

ActionKind kind_of(const std::string& text) {
  for (int kind = 0; kind <= static_cast<int>(ActionKind::reduce_grad); ++kind)
    if (text == text_of(static_cast<ActionKind>(kind))) return static_cast<ActionKind>(kind);
  fail(Code::invalid_argument, "trace: \"", text, "\" is no action of a pipeline");
}

TraceEvent event_of(const JsonScalars& json, const std::string& path) {
  TraceEvent event;
  const std::string& category = words(json, nullptr, "cat", path);
  event.kind = category == "wait"               ? TraceEvent::Kind::wait
               : category == "send and receive" ? TraceEvent::Kind::move
                                                : TraceEvent::Kind::work;
  event.action.stage = integer(json, "args", "stage", -1, INT32_MAX, path);
  event.action.microbatch = integer(json, "args", "microbatch", INT32_MIN, INT32_MAX, path);
  if (event.action.stage >= 0) event.action.kind = kind_of(words(json, "args", "kind", path));
  event.start_ns = nanoseconds(json, "ts", path);
  event.end_ns = event.start_ns + nanoseconds(json, "dur", path);
  return event;
}

// Returns the passes of one rank that have ended. The events of a failed pass are dropped when one of its
// actions begins again.
std::vector<std::vector<TraceEvent>> passes_of(const RankFile& file) {
  const std::string row = text("\"tid\": ", static_cast<int>(TraceRow::pipeline), ",");
  std::vector<std::vector<TraceEvent>> passes;
  std::vector<TraceEvent> pass;
  std::set<std::string> done;
  for_each_line(file.path, [&](const std::string& line) {
    if (line.find(row) == std::string::npos || line.find("\"ph\": \"X\"") == std::string::npos) return;
    const TraceEvent event = event_of(read_json_scalars(line, file.path), file.path);
    if (event.kind == TraceEvent::Kind::work && !done.insert(text_of(event.action)).second) {
      pass.clear();
      done = {text_of(event.action)};
    }
    pass.push_back(event);
    if (event.action.stage >= 0) return;
    passes.push_back(std::exchange(pass, {}));
    done.clear();
  });
  return passes;
}

}  // namespace

std::vector<RankFile> rank_files(const std::string& folder, std::vector<std::string>& left_out) {
  std::vector<RankFile> files;
  std::error_code failed;
  std::filesystem::file_time_type newest{};
  std::string run;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename();
    if (name.rfind("rank-", 0) != 0 || entry.path().extension() != ".json") continue;
    const RankFile file = described(entry.path());
    if (file.path.empty()) {
      left_out.push_back(name + " is empty");
      continue;
    }
    if (files.empty() || entry.last_write_time() > newest) {
      newest = entry.last_write_time();
      run = file.run;
    }
    files.push_back(file);
  }
  if (failed) fail(Code::io, "cannot read the folder ", folder);
  std::erase_if(files, [&](const RankFile& file) {
    if (file.run == run) return false;
    left_out.push_back(std::filesystem::path(file.path).filename().string() + " is of another run");
    return true;
  });
  if (files.empty()) fail(Code::not_found, "no trace of a rank (rank-0.json and so on) is in ", folder);
  std::sort(left_out.begin(), left_out.end());
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return files;
}

TraceOutput::TraceOutput(std::string path, Links links) : path_(std::move(path)) {
  file_ = links == Links::refused ? fdopen(open_new_file("gw-trace: writing", path_, O_TRUNC), "wb")
                                  : std::fopen(path_.c_str(), "wb");
  if (file_ == nullptr) fail_file("gw-trace: writing", path_, errno);
}
TraceOutput::~TraceOutput() {
  if (file_ != nullptr) std::fclose(file_);
}

void TraceOutput::write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), file_); }

void TraceOutput::close() {
  const bool failed = std::ferror(file_) != 0;
  if (std::fclose(std::exchange(file_, nullptr)) != 0 || failed) fail(Code::io, "cannot write ", path_);
}

size_t merge_traces(const std::vector<RankFile>& files, const std::string& path, Links links) {
  TraceOutput out(path, links);
  out.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
  size_t count = 0;
  for (const RankFile& file : files)
    for_each_line(file.path, [&](const std::string& line) {
      out.write(count++ == 0 ? "" : ",\n");
      out.write(line);
    });
  out.write("\n]}\n");
  out.close();
  return count;
}

std::vector<std::vector<TraceEvent>> pipeline_pass(std::vector<RankFile>& files, int index) {
  std::vector<std::vector<std::vector<TraceEvent>>> by_rank;
  size_t common = SIZE_MAX;
  std::erase_if(files, [&](const RankFile& file) {
    auto passes = passes_of(file);
    if (passes.empty()) return true;
    common = std::min(common, passes.size());
    by_rank.push_back(std::move(passes));
    return false;
  });
  if (by_rank.empty() || index >= static_cast<int>(common)) return {};
  const size_t wanted = index < 0 ? common - 1 : static_cast<size_t>(index);
  std::vector<std::vector<TraceEvent>> pass;
  int64_t first = INT64_MAX;
  for (auto& passes : by_rank) {
    pass.push_back(std::move(passes[wanted]));
    for (const TraceEvent& event : pass.back()) first = std::min(first, event.start_ns);
  }
  for (auto& events : pass)
    for (TraceEvent& event : events) {
      event.start_ns -= first;
      event.end_ns -= first;
    }
  return pass;
}

}  // namespace gangway
