#include "tools/trace_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/new_file.h"

namespace gangway {
namespace {

using Json = nlohmann::json;

// Calls `each` with every event: a line, without its comma. Skips a line that a killed process left
// half-written.
template <typename Each>
void for_each_line(const std::string& path, Each&& each) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(Code::io, "cannot read ", path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == ',') line.pop_back();
    if (line.size() < 2 || line.front() != '{') continue;
    // nlohmann's parser takes a zero byte for the end of the line.
    const bool zero = line.find('\0') != std::string::npos;
    if (file.eof() && (zero || !Json::accept(line))) return;
    if (zero) fail(Code::corrupt, path, " has a zero byte");
    each(line);
  }
}

constexpr int64_t kMostRanks = 1 << 20;  // as many as a gang may have (gang/rendezvous/startup.cpp)

// Returns a member of an event that must be an integer from `lowest` to `highest`. The bounds are those of
// what the tools loop over and allocate by.
int integer(const Json& object, const char* member, int64_t lowest, int64_t highest,
            const std::string& path) {
  const auto found = object.find(member);
  const bool is_integer = found != object.end() && found->is_number_integer();
  const bool fits = is_integer && (!found->is_number_unsigned() || found->get<uint64_t>() <= INT64_MAX);
  const int64_t value = fits ? found->get<int64_t>() : 0;
  if (!fits || value < lowest || value > highest)
    fail(Code::invalid_argument, path, " is no trace of a rank: \"", member, "\" is ",
         found != object.end() ? found->dump() : "missing", ", not an integer from ", lowest, " to ",
         highest);
  return static_cast<int>(value);
}

// Returns a time of an event, which is in microseconds, in nanoseconds.
int64_t nanoseconds(const Json& event, const char* member, const std::string& path) {
  constexpr double kMost = 1e15;  // 30 years; sums of two times stay far from the end of int64_t
  const double time = event.at(member).get<double>();
  if (!(std::abs(time) <= kMost))
    fail(Code::invalid_argument, path, " is no trace of a rank: \"", member, "\" is ",
         event.at(member).dump(), " microseconds");
  return std::llround(time * 1000);
}

// Returns an empty path for an empty file, as a rank that ended too early leaves it.
RankFile described(const std::string& path) {
  RankFile found;
  if (std::filesystem::file_size(path) == 0) return found;
  for_each_line(path, [&](const std::string& line) {
    if (!found.path.empty()) return;
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_discarded() || event.value("name", "") != "process_name")
      fail(Code::invalid_argument, path, " is no trace of a rank");
    const Json& args = event.at("args");
    found = {integer(event, "pid", 0, kMostRanks - 1, path), integer(args, "ranks", 1, kMostRanks, path),
             args.value("run", uint64_t{0}), path};
  });
  if (found.path.empty()) fail(Code::invalid_argument, path, " is no trace of a rank");
  return found;
}

ActionKind kind_of(const std::string& text) {
  for (int kind = 0; kind <= static_cast<int>(ActionKind::reduce_grad); ++kind)
    if (text == text_of(static_cast<ActionKind>(kind))) return static_cast<ActionKind>(kind);
  fail(Code::invalid_argument, "trace: \"", text, "\" is no action of a pipeline");
}

TraceEvent event_of(const Json& json, const std::string& path) {
  const Json& args = json.at("args");
  TraceEvent event;
  const std::string category = json.at("cat");
  event.kind = category == "wait"               ? TraceEvent::Kind::wait
               : category == "send and receive" ? TraceEvent::Kind::move
                                                : TraceEvent::Kind::work;
  event.action.stage = integer(args, "stage", -1, INT32_MAX, path);
  event.action.microbatch = integer(args, "microbatch", INT32_MIN, INT32_MAX, path);
  if (event.action.stage >= 0) event.action.kind = kind_of(args.at("kind"));
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
    const TraceEvent event = event_of(Json::parse(line), file.path);
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
  uint64_t run = 0;
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
