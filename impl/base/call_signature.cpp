#include "base/call_signature.h"

#include "base/error.h"

namespace gangway {
namespace {

// Removes the first line from `rest` and returns it.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

std::string_view or_nothing(std::string_view line) {
  return line.empty() ? std::string_view("nothing there") : line;
}

}  // namespace

void CallSignature::add(std::string_view name, std::string_view value) {
  text_ += '\n';
  text_ += scope_;
  if (!scope_.empty()) text_ += '.';
  text_ += name;
  text_ += ' ';
  text_ += value;
}

std::string difference(const std::string& gang, std::string_view of_rank_0, std::string_view of_other,
                       int rank) {
  const std::string_view call = take_line(of_rank_0), other_call = take_line(of_other);
  if (call != other_call)
    return text("gang \"", gang, "\": rank 0 asked for ", call, ", but rank ", rank, " for ", other_call);
  std::string_view line, other;
  while (line == other && !(of_rank_0.empty() && of_other.empty())) {
    line = take_line(of_rank_0);
    other = take_line(of_other);
  }
  return text(call, ": rank 0 has ", or_nothing(line), ", rank ", rank, " has ", or_nothing(other),
              "; give all ranks the same");
}

}  // namespace gangway
