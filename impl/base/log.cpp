#include "base/log.h"

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>

namespace gangway {
namespace {

constexpr size_t kLines = 1024;

struct Ring {
  std::mutex mutex;
  std::array<LogLine, kLines> lines;
  uint64_t next = 0;
};

std::atomic<LogSink> other_sink{nullptr};

// Never destroyed: other threads may still log while the process ends.
Ring& ring() {
  static Ring* const r = new Ring;
  return *r;
}

}  // namespace

void log_to(LogSink sink) { other_sink = sink; }

void log(LogLevel level, std::string message) {
  if (const LogSink sink = other_sink.load()) return sink(level, std::move(message));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Ring& r = ring();
  const std::lock_guard lock(r.mutex);
  LogLine& line = r.lines[r.next % kLines];
  line.number = r.next++;
  line.nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  line.level = level;
  line.message = std::move(message);
}

std::vector<LogLine> log_lines(uint64_t first) {
  Ring& r = ring();
  const std::lock_guard lock(r.mutex);
  const uint64_t oldest = r.next > kLines ? r.next - kLines : 0;
  std::vector<LogLine> out;
  for (uint64_t i = first > oldest ? first : oldest; i < r.next; ++i) out.push_back(r.lines[i % kLines]);
  return out;
}

}  // namespace gangway
