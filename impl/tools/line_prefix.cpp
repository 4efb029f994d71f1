#include "tools/line_prefix.h"

#include <utility>

namespace gangway::tools {
namespace {

constexpr size_t kLongestLine = 64 << 10;  // in bytes; longer lines are broken
constexpr std::string_view kClearLine = "\r\033[K";

}  // namespace

void LinePrefix::feed(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) take(c, out);
  sink_.queue->add(out);
}

void LinePrefix::finish() {
  if (!line_.empty() || drawing_) feed("\n");
}

// Begins a line, over a progress line if one is on the screen.
void LinePrefix::begin_line(std::string& out) {
  if (sink_.drawing != nullptr && *sink_.drawing) {
    out += kClearLine;
    *sink_.drawing = false;
  }
  out += prefix_;
}

void LinePrefix::take(char c, std::string& out) {
  const bool after_return = std::exchange(returned_, c == '\r' && sink_.terminal);
  if (c == '\n') {
    if (!drawing_) begin_line(out);
    if (drawing_ && sink_.drawing != nullptr) *sink_.drawing = false;
    out += line_;
    out += '\n';
    line_.clear();
    drawing_ = false;
  } else if (returned_) {
    if (!progress_ || after_return) return;
    if (!drawing_) begin_line(out);
    out += line_;
    line_.clear();
    drawing_ = true;
    if (sink_.drawing != nullptr) *sink_.drawing = true;
  } else if (drawing_) {
    if (after_return) (out += kClearLine) += prefix_;
    out += c;
    if (sink_.drawing != nullptr) *sink_.drawing = true;
  } else {
    if (after_return) line_.clear();
    line_ += c;
    if (line_.size() >= kLongestLine) take('\n', out);
  }
}

}  // namespace gangway::tools
