// A ring of the latest log lines. The library never prints; a program reads the lines through the C ABI.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gangway {

enum class LogLevel : int32_t { debug = 0, info = 1, warning = 2, error = 3 };

struct LogLine {
  uint64_t number = 0;      // counts from 0 in each process
  int64_t nanoseconds = 0;  // since the epoch
  LogLevel level = LogLevel::info;
  std::string message;
};

using LogSink = void (*)(LogLevel level, std::string message);
void log(LogLevel level, std::string message);
// Sends later lines to another function instead of the ring. A loadable module has its own copy of these
// functions, and sends its lines to the core's.
void log_to(LogSink sink);

// Returns the lines with number >= first that are still in the ring, which holds the newest 1024.
std::vector<LogLine> log_lines(uint64_t first);

}  // namespace gangway
