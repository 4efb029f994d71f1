// gw-compare reads the gradient norms that two runs of gw-train recorded (metrics.norms_every), and names the
// first step and the first parameter in which they differ.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/json_scalars.h"
#include "base/line.h"
#include "tools/arguments.h"

namespace {

using namespace gangway;

constexpr int kEqual = 0, kDiffer = 1, kTrouble = 2;  // exit statuses, as those of diff(1)

// What a run recorded of one step. Parameters are in the order of the model.
struct Step {
  double loss = 0;
  std::vector<std::pair<std::string, double>> norms;
};
using Steps = std::map<int64_t, Step>;

// Reads the members of a line. `refusal` begins the text of an error.
std::string_view member(const JsonMembers& line, const char* key, const std::string& refusal) {
  const std::string_view* const found = find_member(line, key);
  if (found == nullptr) fail(Code::corrupt, refusal, ": \"", key, "\" is missing");
  return *found;
}

// Numbers that JSON does not have stand there as texts.
double number_of(std::string_view value, const std::string& refusal) {
  const bool is_text = value.front() == '"';
  if (!is_text && value.find_first_of("-0123456789") != 0)
    fail(Code::corrupt, refusal, ": ", printable(value), " is no number");
  const std::string digits = is_text ? json_string(value).value_or("") : std::string(value);
  return std::strtod(digits.c_str(), nullptr);
}

int64_t step_of(std::string_view value, const std::string& refusal) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), step);
  if (error != std::errc() || end != value.data() + value.size())
    fail(Code::corrupt, refusal, ": ", printable(value), " is no step");
  return step;
}

Steps read_run(const std::string& folder) {
  const std::string path = folder + "/norms.jsonl";
  std::ifstream in(path, std::ios::binary);
  if (!in)
    fail(Code::not_found, folder, " has no norms.jsonl; gw-train writes it with metrics.norms_every = 1");
  Steps steps;
  int64_t number = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    ++number;
    const std::string refusal = text(path, ": line ", number, " is no line of norms");
    const JsonMembers read = json_members(line, refusal);
    Step step{number_of(member(read, "loss", refusal), refusal), {}};
    for (const auto& [name, norm] : json_members(member(read, "norms", refusal), refusal))
      step.norms.emplace_back(name, number_of(norm, refusal));
    steps[step_of(member(read, "step", refusal), refusal)] = std::move(step);
  }
  return steps;
}

// The distance of two numbers relative to the larger one; equal numbers, also two NaNs, have none.
double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double most = std::max(std::fabs(a), std::fabs(b));
  return std::isfinite(a) && std::isfinite(b) ? std::fabs(a - b) / most : HUGE_VAL;
}

struct Difference {
  std::string name;
  double a, b, relative;
};

// Returns the parameters whose norms are further apart than `tolerance`, in the order of the model.
std::vector<Difference> differences(const Step& a, const Step& b, double tolerance) {
  const std::map<std::string, double> other(b.norms.begin(), b.norms.end());
  std::vector<Difference> found;
  for (const auto& [name, norm] : a.norms) {
    const auto at = other.find(name);
    const double theirs = at == other.end() ? std::nan("") : at->second;
    const double relative = at == other.end() ? HUGE_VAL : distance(norm, theirs);
    if (relative > tolerance) found.push_back({name, norm, theirs, relative});
  }
  return found;
}

void print(const char* label, const Difference& d) {
  std::printf("  %-7s %s: %.9g and %.9g (%.1e apart)\n", label, d.name.c_str(), d.a, d.b, d.relative);
}

int compare(const std::string& first, const std::string& second, double tolerance) {
  const Steps a = read_run(first), b = read_run(second);
  int64_t compared = 0;
  for (const auto& [number, step] : a) {
    const auto at = b.find(number);
    if (at == b.end()) continue;
    ++compared;
    const std::vector<Difference> found = differences(step, at->second, tolerance);
    const double loss = distance(step.loss, at->second.loss);
    if (found.empty() && loss <= tolerance && step.norms.size() == at->second.norms.size()) continue;
    std::printf("step %lld is the first that differs by more than %g: loss %.9g and %.9g\n",
                static_cast<long long>(number), tolerance, step.loss, at->second.loss);
    if (step.norms.size() != at->second.norms.size())
      std::printf("  the runs have %zu and %zu parameters\n", step.norms.size(), at->second.norms.size());
    if (found.empty()) return kDiffer;
    std::printf("  %zu of %zu gradient norms differ\n", found.size(), step.norms.size());
    print("first", found.front());
    print("last", found.back());  // backward computes it before the others
    print("largest", *std::max_element(found.begin(), found.end(),
                                       [](const auto& x, const auto& y) { return x.relative < y.relative; }));
    return kDiffer;
  }
  if (compared == 0) fail(Code::not_found, first, " and ", second, " have no step in common");
  std::printf("%lld steps are equal within %g\n", static_cast<long long>(compared), tolerance);
  return kEqual;
}

}  // namespace

int main(int argc, char** argv) {
  std::string a, b;
  double tolerance = 1e-6;
  const tools::CommandLine line = {
      "",
      "Names the first step and parameter in which the gradient norms of two runs of gw-train differ.\n"
      "Exit status: 0 equal, 1 different, 2 trouble.",
      {{"--version", tools::Version{"gw-compare " GANGWAY_VERSION}},
       {"a", &a, "the folder of a run, with norms.jsonl (metrics.norms_every)", {.required = true}},
       {"b", &b, "another", {.required = true}},
       {"--tolerance",
        &tolerance,
        "relative distance that counts as equal; 0: bits",
        {.must = tools::NotNegative{}, .default_shown = true}}}};
  try {
    if (const std::optional<int> status = tools::read_arguments(line, argc, argv)) return *status;
    return compare(a, b, tolerance);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gw-compare: %s\n", error.what());
    return kTrouble;
  }
}
