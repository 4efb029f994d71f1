// What a rank does and when, as a file for ui.perfetto.dev and chrome://tracing: what modules compute, actions of a
// pipeline, collectives from their launch to their end, waits. Times are the host's; on a device whose streams run later
// they are those of the launches.
//
// Off, it costs a look at one flag. A file is readable up to its last whole line, even if the process is killed: it has its
// head from the start on, and what was added up to the last flush().
//
// Thread rule: any thread; begin, cancel and end one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace gangway {

// A row of the picture. Spans of `collective` may overlap; those of the other rows lie within each other, if one thread of the
// rank computes at a time.
enum class TraceRow : uint8_t { step, pipeline, compute, wait, collective };
constexpr int kTraceRows = 5;
const char* name(TraceRow row);

class Tracer {
 public:
  Tracer() = default;
  ~Tracer();  // ends; what cannot be written is lost
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  // Opens folder/rank-R.json; makes the folder. A rank that traces a second time in one process writes rank-R.2.json and so
  // on. `run`: a number that the ranks of a run have in common. `clock_ahead_ns`: what this rank's clock is ahead of the one
  // that all files go by. IO; INVALID_STATE: it is on.
  void begin(const std::string& folder, uint64_t run, int rank, int ranks, int64_t clock_ahead_ns);
  // As if begin() had not been called.
  void cancel() noexcept;
  // Writes the rest and closes the file; nothing if it is off. IO: the file could not be written, now or before.
  void end();
  // Writes what was added; a failure is told by end().
  void flush() noexcept;

  // A span. `detail`: further members of the event's "args", as JSON: "\"bytes\": 8".
  void add(TraceRow row, std::string_view category, std::string_view name, int64_t start_ns, int64_t end_ns,
           std::string_view detail = {}) noexcept;

 private:
  void write() noexcept;
  void close() noexcept;
  [[noreturn]] void cannot_write(int system_error) const;

  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  std::string stem_, path_, text_;
  int file_ = -1, error_ = 0, rank_ = 0;
  int64_t ahead_ns_ = 0;
  uint64_t spans_ = 0;  // of the row of collectives
};

// Words as they may stand between quotes in JSON.
std::string json_words(std::string_view words);

// A span from here to the end of the scope. `name` must stay until then.
class TraceSpan {
 public:
  // Null: no tracer.
  TraceSpan(Tracer* tracer, TraceRow row, const char* category, std::string_view name) noexcept
      : tracer_(tracer != nullptr && tracer->on() ? tracer : nullptr),
        row_(row),
        category_(category),
        name_(name) {
    if (tracer_ != nullptr) [[unlikely]]
      start_ns_ = Tracer::now_ns();
  }
  ~TraceSpan() {
    if (tracer_ != nullptr) [[unlikely]]
      tracer_->add(row_, category_, name_, start_ns_, Tracer::now_ns());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Tracer* const tracer_;
  const TraceRow row_;
  const char* const category_;
  const std::string_view name_;
  int64_t start_ns_ = 0;
};

}  // namespace gangway
