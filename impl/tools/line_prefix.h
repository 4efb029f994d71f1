// Merges the output of many ranks into one stream. Every line begins with its rank, and lines of two ranks
// never mix. On a terminal, a line that rank 0 redraws with carriage returns (a progress line) is passed
// through as it changes. Of other ranks' progress lines, only the last state is shown.
//
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "tools/output_queue.h"

namespace gangway::tools {

// Where lines go. All sinks of one screen share `drawing`, which tells whether an unfinished progress line is
// on it.
struct LineSink {
  OutputQueue* queue = nullptr;
  bool terminal = false;
  bool* drawing = nullptr;
};

class LinePrefix {
 public:
  LinePrefix(LineSink sink, std::string prefix, bool progress)
      : sink_(sink), prefix_(std::move(prefix)), progress_(progress && sink.terminal) {}

  void feed(std::string_view bytes);
  void finish();  // the last line may lack a line feed

 private:
  void take(char c, std::string& out);
  void begin_line(std::string& out);

  LineSink sink_;
  std::string prefix_;
  bool progress_;          // redrawn lines are passed through
  bool drawing_ = false;   // this line is being redrawn
  bool returned_ = false;  // the last byte was a carriage return
  std::string line_;       // bytes that are not written yet
};

}  // namespace gangway::tools
