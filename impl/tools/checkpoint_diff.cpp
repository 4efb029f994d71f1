// The command diff: the values and states of two checkpoints.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/line.h"
#include "checkpoint/run/verify.h"
#include "checkpoint/source.h"
#include "tools/checkpoint_commands.h"
#include "tools/checkpoint_values.h"
#include "tools/progress_line.h"

namespace gangway {
namespace {

constexpr size_t kPieceElements = 1 << 17;

// One of the two checkpoints. A key is a set of tensors ("model", "optimizer", "teacher/model") and a name;
// how a set is split into files does not matter.
struct Side {
  using Key = std::pair<std::string, std::string>;
  std::optional<CheckpointState> state;  // absent: a plain folder or file
  std::optional<Source> source;          // of a plain folder or file
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<Key, Source::Entry> tensors;
};

// Returns "teacher/model" for "teacher/model-00001-of-00003.safetensors".
std::string set_of(const std::string& file) {
  constexpr std::string_view kEnd = ".safetensors";
  std::string stem = file.substr(0, file.size() - kEnd.size());
  const size_t of = stem.rfind("-of-");
  const size_t dash = of == std::string::npos || of == 0 ? std::string::npos : stem.rfind('-', of - 1);
  if (dash != std::string::npos && stem.find_first_not_of("0123456789-of", dash) == std::string::npos)
    stem.resize(dash);
  return stem;
}

Side open_side(const std::string& given) {
  const std::string path = checkpoint_in(given);
  Side side;
  struct stat status {};
  if (stat((path + "/" + kStateName).c_str(), &status) != 0) {
    side.source = Source::open(path);
    side.source->check_complete();
    for (const auto& [name, entry] : side.source->tensors()) side.tensors[{"model", name}] = entry;
    return side;
  }
  side.state = read_state(path);
  for (const StoredFile& file : side.state->files) {
    if (!file.name.ends_with(".safetensors")) continue;
    const auto& opened = side.files.emplace_back(std::make_unique<SafetensorsFile>(path + "/" + file.name));
    for (const auto& [name, tensor] : opened->tensors())
      side.tensors[{set_of(file.name), name}] = {opened.get(), tensor};
  }
  return side;
}

// The state as lines of a name and a text. The mesh is left out: it is no part of what the next step depends
// on.
std::map<std::string, std::string> lines_of(const CheckpointState& state) {
  const auto number = [](double value) {
    char out[32];
    std::snprintf(out, sizeof out, "%.17g", value);
    return std::string(out);
  };
  std::map<std::string, std::string> lines = {{"step", std::to_string(state.step)},
                                              {"tokens", std::to_string(state.tokens)},
                                              {"user", printable(state.user)}};
  if (state.user.size() > 80) lines["user"] += text(" (", state.user.size(), " bytes)");
  for (const auto& [name, model] : state.models) lines["models." + printable(name)] = model;
  for (const auto& [name, value] : state.texts) lines["texts." + printable(name)] = value;
  for (const auto& [name, optimizer] : state.optimizers) {
    const std::string prefix = "optimizers." + printable(name) + ".";
    lines[prefix + "kind"] = optimizer.kind;
    lines[prefix + "steps"] = std::to_string(optimizer.steps);
    lines[prefix + "lr"] = number(optimizer.lr);
    lines[prefix + "configured_lr"] = number(optimizer.configured_lr);
    lines[prefix + "loss_scale"] = number(optimizer.loss_scale);
    lines[prefix + "finite_steps"] = std::to_string(optimizer.finite_steps);
    lines[prefix + "hyperparameters"] = optimizer.hyperparameters;
    for (const auto& [parameter, step] : optimizer.first_steps)
      lines[prefix + "first_steps." + printable(parameter)] = std::to_string(step);
  }
  return lines;
}

// Prints what differs. Returns whether nothing does.
bool compare_states(const CheckpointState& a, const CheckpointState& b) {
  const auto in_a = lines_of(a), in_b = lines_of(b);
  bool equal = true;
  const auto print = [&](const std::string& name, const char* there, const char* here) {
    equal = false;
    std::printf("%s: %s in A, %s in B\n", name.c_str(), there, here);
  };
  for (const auto& [name, value] : in_a) {
    const auto found = in_b.find(name);
    if (found == in_b.end())
      print(name, value.c_str(), "missing");
    else if (found->second != value)
      print(name, value.c_str(), found->second.c_str());
    else if (name == "user" && a.user != b.user)  // behind its first 80 bytes
      print(name, value.c_str(), "other bytes");
  }
  for (const auto& [name, value] : in_b)
    if (in_a.count(name) == 0) print(name, "missing", value.c_str());
  return equal;
}

struct Difference {
  std::string name, kind;  // kind: shape and dtype, or what of them differs
  int64_t elements = 0, count = 0;
  std::string first, largest;  // places and values
  double by = 0;
};

std::string shown(double value) {
  char out[32];
  std::snprintf(out, sizeof out, "%.9g", value);
  return out;
}

// Elements of two pieces of one tensor as numbers; equal dtypes are compared by their bytes.
class Pieces {
 public:
  Pieces(const Source::Entry& a, const Source::Entry& b) : a_(a), b_(b) {}

  // Reads elements [at, at + count). Returns whether all bytes are equal and mean the same.
  bool read(int64_t at, size_t count) {
    bytes_of(a_, at, count, bytes_a_);
    bytes_of(b_, at, count, bytes_b_);
    if (same_dtype() && bytes_a_ == bytes_b_) return true;
    numbers_ =
        to_doubles(a_.tensor.dtype, bytes_a_, values_a_) && to_doubles(b_.tensor.dtype, bytes_b_, values_b_);
    return false;
  }
  bool differs(size_t i) const {
    const size_t item = item_bytes(a_.tensor.dtype);
    if (same_dtype()) return std::memcmp(bytes_a_.data() + i * item, bytes_b_.data() + i * item, item) != 0;
    if (!numbers_) return true;
    return values_a_[i] != values_b_[i] && !(std::isnan(values_a_[i]) && std::isnan(values_b_[i]));
  }
  double by(size_t i) const {
    const double by = numbers_ ? std::abs(values_a_[i] - values_b_[i]) : 0;
    return std::isnan(by) ? std::numeric_limits<double>::infinity() : by;
  }
  std::string text(size_t i) const {
    return numbers_ ? shown(values_a_[i]) + " in A, " + shown(values_b_[i]) + " in B" : "other bytes";
  }

 private:
  static void bytes_of(const Source::Entry& entry, int64_t at, size_t count, std::vector<char>& bytes) {
    const size_t item = item_bytes(entry.tensor.dtype);
    bytes.resize(count * item);
    const uint64_t first = static_cast<uint64_t>(at) * item;
    entry.file->read(entry.tensor, first, first + bytes.size(), bytes.data());
  }
  bool same_dtype() const { return a_.tensor.dtype == b_.tensor.dtype; }

  const Source::Entry &a_, &b_;
  std::vector<char> bytes_a_, bytes_b_;
  std::vector<double> values_a_, values_b_;
  bool numbers_ = false;
};

Difference compare(const std::string& name, const Source::Entry& a, const Source::Entry& b,
                   ProgressLine& line) {
  Difference found{name, gangway::name(a.tensor.dtype) + " " + a.tensor.shape.text(), 0, 0, "", "", 0};
  if (a.tensor.dtype != b.tensor.dtype)
    found.kind = gangway::name(a.tensor.dtype) + " in A, " + gangway::name(b.tensor.dtype) + " in B";
  found.elements = a.tensor.shape.count();
  Pieces pieces(a, b);
  for (int64_t at = 0; at < found.elements; at += kPieceElements) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kPieceElements, found.elements - at));
    line.add(count * item_bytes(a.tensor.dtype));
    if (pieces.read(at, count)) continue;
    for (size_t i = 0; i < count; ++i) {
      if (!pieces.differs(i)) continue;
      const double by = pieces.by(i);
      if (found.count++ > 0 && by <= found.by) continue;
      found.by = by;
      found.largest = place_text(at + static_cast<int64_t>(i), a.tensor.shape) + ": " + pieces.text(i);
      if (found.count == 1) found.first = found.largest;
    }
  }
  return found;
}

void print(const Difference& found) {
  std::printf("%s (%s): %lld of %lld elements differ", found.name.c_str(), found.kind.c_str(),
              static_cast<long long>(found.count), static_cast<long long>(found.elements));
  if (found.count > 0)
    std::printf("; first %s; largest %s, by %s", found.first.c_str(), found.largest.c_str(),
                shown(found.by).c_str());
  std::printf("\n");
}

// Prints the names that only `one` has: a line for a whole set of tensors, otherwise a line for each of them.
bool print_missing(const Side& one, const Side& other, const char* where) {
  std::map<std::string, bool> has_set;
  for (const auto& [key, entry] : other.tensors) has_set[key.first] = true;
  std::map<std::string, size_t> whole_sets;
  bool none = true;
  for (const auto& [key, entry] : one.tensors) {
    if (other.tensors.count(key) != 0) continue;
    none = false;
    if (!has_set[key.first])
      ++whole_sets[key.first];
    else
      std::printf("%s %s: only in %s\n", key.first.c_str(), printable(key.second).c_str(), where);
  }
  for (const auto& [set, count] : whole_sets)
    std::printf("%s: only in %s, with all its %zu tensors\n", set.c_str(), where, count);
  return none;
}

using Pair = std::pair<const Side::Key*, std::pair<Source::Entry, Source::Entry>>;

// Returns the tensors that both sides have in the same shape; prints those whose shapes differ.
std::vector<Pair> pairs_of(const Side& a, const Side& b, bool& equal) {
  std::vector<Pair> pairs;
  for (const auto& [key, entry] : a.tensors) {
    const auto found = b.tensors.find(key);
    if (found == b.tensors.end()) continue;
    for (const Source::Entry& side : {entry, found->second})
      check_readable(side.tensor, key.second, side.file->file().path(), "diff");
    const Shape &here = entry.tensor.shape, &there = found->second.tensor.shape;
    if (here == there) {
      pairs.push_back({&key, {entry, found->second}});
      continue;
    }
    equal = false;
    std::printf("%s %s: shape %s in A, %s in B\n", key.first.c_str(), printable(key.second).c_str(),
                here.text().c_str(), there.text().c_str());
  }
  return pairs;
}

// Returns the tensors that differ, the largest difference first.
std::vector<Difference> compare_all(const std::vector<Pair>& pairs) {
  uint64_t total = 0;
  for (const auto& [key, entries] : pairs) total += entries.first.tensor.last - entries.first.tensor.first;
  ProgressLine line("comparing", total);
  std::vector<Difference> all;
  for (const auto& [key, entries] : pairs) {
    const auto& [a, b] = entries;
    Difference difference = compare(key->first + " " + printable(key->second), a, b, line);
    if (difference.count > 0 || a.tensor.dtype != b.tensor.dtype) all.push_back(std::move(difference));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.by > y.by; });
  return all;
}

}  // namespace

bool diff_folders(const DiffCommand& command) {
  const Side a = open_side(command.a), b = open_side(command.b);
  bool equal = !a.state || !b.state || compare_states(*a.state, *b.state);
  equal = print_missing(a, b, "A") && equal;
  equal = print_missing(b, a, "B") && equal;
  const std::vector<Pair> pairs = pairs_of(a, b, equal);
  const std::vector<Difference> all = compare_all(pairs);
  const size_t lines = std::min(all.size(), static_cast<size_t>(command.lines));
  for (size_t i = 0; i < lines; ++i) print(all[i]);
  if (lines < all.size())
    std::printf("... and %zu tensors that differ by less (--lines shows them)\n", all.size() - lines);
  equal = equal && all.empty();
  std::printf("%zu of %zu tensors differ%s\n", all.size(), pairs.size(), equal ? "; A and B are equal" : "");
  return equal;
}

}  // namespace gangway
