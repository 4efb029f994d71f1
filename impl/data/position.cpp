#include "data/position.h"

#include <charconv>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/line.h"

namespace gangway::data {
namespace {

constexpr int64_t kVersion = 1;
constexpr size_t kDeepest = 8;

// The values of a JSON text by their paths: {"a": [{"b": 1}]} has "a[0].b" -> "1".
using Facts = std::map<std::string, std::string>;

// Collects them.
class FactEvents final : public JsonEvents {
 public:
  explicit FactEvents(Facts& facts) : facts_(facts) {}

  bool null() override { return add("null"); }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  bool integer(int64_t value) override { return add(std::to_string(value)); }
  bool unsigned_integer(uint64_t value) override { return add(std::to_string(value)); }
  bool real(double, const std::string& token) override { return add(token); }
  bool string(const std::string& value) override { return add("\"" + value + "\""); }
  bool start_object() override { return enter(false); }
  bool start_list() override { return enter(true); }
  bool end_object() override { return leave(); }
  bool end_list() override { return leave(); }
  bool key(const std::string& key) override {
    levels_.back().path = levels_.back().before + (levels_.back().before.empty() ? "" : ".") + key;
    return true;
  }
  void parse_error(JsonFault, size_t) override {}

 private:
  struct Level {
    std::string before, path;  // of the list or object, and of the value that comes next
    bool list;
    size_t index;
  };

  std::string path() const { return levels_.empty() ? "" : levels_.back().path; }
  bool add(std::string value) {
    if (levels_.empty() || !facts_.emplace(path(), std::move(value)).second) return false;
    step();
    return true;
  }
  void step() {
    Level& level = levels_.back();
    if (level.list) level.path = text(level.before, "[", ++level.index, "]");
  }
  bool enter(bool list) {
    if (levels_.size() == kDeepest || (levels_.empty() && list)) return false;
    const std::string before = path();
    levels_.push_back({before, list ? before + "[0]" : before, list, 0});
    return true;
  }
  bool leave() {
    levels_.pop_back();
    if (!levels_.empty()) step();
    return true;
  }

  Facts& facts_;
  std::vector<Level> levels_;
};

// Returns the JSON text of a name of a file, which need not be UTF-8.
std::string quoted(const std::string& name) { return json_scalar(path_to_utf8(name)); }

Facts facts_of(std::string_view position) {
  Facts facts;
  FactEvents events(facts);
  if (!read_json(position, events))
    fail(Code::invalid_argument, "position: the text is not that of gw_dataset_position");
  return facts;
}

// Takes a number out of the facts.
int64_t take(Facts& facts, const char* name) {
  const auto found = facts.find(name);
  int64_t value = 0;
  const std::string digits = found == facts.end() ? "" : found->second;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    fail(Code::invalid_argument, "position: the text has no number \"", name, "\"");
  facts.erase(found);
  return value;
}

// Returns the value for a text, in which the zero bytes of path_to_utf8 become \x.
std::string shown(const std::string& value) {
  std::string out;
  for (const char c : value) out += c == '\0' ? "\\x" : std::string(1, c);
  return out;
}

bool is_sample(const std::string& fact) { return fact.ends_with(".sample"); }

[[noreturn]] void refuse(const std::string& fact, const std::string& before, const std::string& now) {
  if (is_sample(fact))
    fail(Code::mismatch, "position: ", fact.substr(0, fact.rfind('.')),
         " has other contents than before, by a hash of some of its bytes (", shown(before), ", now ",
         shown(now),
         "), so that the rows that follow would be others; restore with ignore_differences to go on with "
         "them");
  fail(Code::mismatch, "position: ", fact, " was ", shown(before), " and is ", shown(now),
       " now, so that the rows that follow would be others; restore with ignore_differences to go on with "
       "them");
}

void compare(const Facts& before, const Facts& now) {
  for (const auto& [fact, value] : before) {
    const auto other = now.find(fact);
    if (other == now.end() || other->second != value)
      refuse(fact, value, other == now.end() ? "absent" : other->second);
  }
  // An earlier release took no samples.
  for (const auto& [fact, value] : now)
    if (before.count(fact) == 0 && !is_sample(fact)) refuse(fact, "absent", value);
}

}  // namespace

std::string write_position(const RowStream& stream, const Position& position) {
  const DatasetOptions& options = stream.options();
  const bool documents = options.rows.packing == Packing::documents;
  std::string out =
      text("{\"version\":", kVersion, ",\"rows\":", position.rows, ",\"batches\":", position.batches,
           ",\"sequence\":", options.rows.sequence, ",\"packing\":\"", documents ? "documents" : "stream",
           "\",\"document_end\":", options.rows.document_end, ",\"seed\":", options.seed,
           ",\"shuffle\":", options.shuffle ? "true" : "false", ",\"sources\":[");
  for (size_t k = 0; k < stream.sources().size(); ++k) {
    out += text(k > 0 ? "," : "", "{\"weight\":", stream.mixture().shares()[k],
                ",\"rows\":", stream.sources()[k].rows(), ",\"files\":[");
    const std::vector<FileFacts>& files = stream.sources()[k].files();
    for (size_t i = 0; i < files.size(); ++i)
      out += text(i > 0 ? "," : "", "{\"name\":", quoted(base_name(files[i].path)),
                  ",\"bytes\":", files[i].bytes, ",\"sample\":\"", stream.sources()[k].samples()[i], "\"}");
    out += "]}";
  }
  return out + "]}";
}

Position read_position(const RowStream& stream, std::string_view text, bool ignore_differences) {
  Facts before = facts_of(text);
  const int64_t version = take(before, "version");
  if (version != kVersion)
    fail(Code::not_supported, "position: its version is ", version, ", this library knows ", kVersion);
  const Position found = {take(before, "rows"), take(before, "batches")};
  Facts now = facts_of(write_position(stream, {}));
  for (const char* name : {"version", "rows", "batches"}) take(now, name);
  if (!ignore_differences) compare(before, now);
  return found;
}

}  // namespace gangway::data
