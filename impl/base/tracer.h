// Writes what a rank does and when to a file for ui.perfetto.dev and chrome://tracing: the computing of
// modules, actions of a pipeline, collectives from launch to end, and waits. The times are the host's. On a
// device with asynchronous streams, they are the times of the launches.
//
// A tracer that is off costs a load of one flag. A file is readable up to its last whole line even if the
// process is killed: it has its header from the start, and holds what was added up to the last flush().
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

// A row in the viewer. Spans of `collective` may overlap. Those of the other rows nest, if only one thread of
// the rank computes at a time.
enum class TraceRow : uint8_t { step, pipeline, compute, wait, collective };
constexpr int kTraceRows = 5;
const char* name(TraceRow row);

class Tracer {
 public:
  Tracer() = default;
  ~Tracer();  // Ends the trace and ignores write errors.
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  // Opens folder/rank-R.json and makes the folder. A rank that traces a second time in one process writes
  // rank-R.2.json, and so on. `run` is a number that all ranks of a run share. `clock_ahead_ns` is how far
  // this rank's clock is ahead of the clock that all files use. IO: the file cannot be written,
  // or a symbolic link lies in its place. INVALID_STATE: the tracer is on already.
  void begin(const std::string& folder, uint64_t run, int rank, int ranks, int64_t clock_ahead_ns);
  // Undoes begin(), and deletes the file.
  void cancel() noexcept;
  // Writes the rest and closes the file. Does nothing if the tracer is off. IO: the file could not be
  // written, now or earlier.
  void end();
  // Writes what was added. end() reports a failure.
  void flush() noexcept;

  // Adds a span. `detail` holds further members of the event's "args" as JSON: "\"bytes\": 8".
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
  uint64_t spans_ = 0;  // the number of spans in the row of collectives
};

// Escapes a text for use between quotes in JSON.
std::string json_escaped(std::string_view text);

// Traces a span from its construction to the end of its scope. `name` must live until then.
class TraceSpan {
 public:
  // `tracer` may be null, for no trace.
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
