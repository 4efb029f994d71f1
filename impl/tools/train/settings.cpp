#include "tools/train/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string_view>

#include "tools/train/optimizer_keys.h"

namespace gangway::train {
namespace {

using Type = TomlValue::Type;

constexpr Key kKeys[] = {
    {"model.folder", Kind::text, nullptr, "",
     "a Hugging Face folder: config.json, and model files if it has values"},
    {"model.values", Kind::choice, "auto", "auto|load|fresh",
     "load the folder's values, or draw fresh ones; auto: load if there are any"},
    {"model.attention_dropout", Kind::choice, "config", "config|none",
     "the dropout of attention's probabilities, of which training has none; config: refused unless it is 0"},

    {"model.fp8", Kind::text, "", "",
     "module paths of linear layers that compute in FP8, as \"model.layers.*.mlp.*\"; empty: none; --verify "
     "computes without it"},
    {"model.fp8_scaling", Kind::choice, "tensor", "tensor|delayed|row",
     "what shares a scale: a tensor, whose scale depends on the mesh, or a row"},
    {"model.fp8_history", Kind::integer, "16", "1..4096", "steps from which a delayed scale follows"},

    {"lora.rank", Kind::integer, "0", "0..2147483647",
     "rank of the adapters of linear layers, which alone are trained; 0: no adapters, all is trained"},
    {"lora.alpha", Kind::number, "8", "(0, inf)", "the scale of an adapter is alpha / rank"},
    {"lora.dropout", Kind::number, "0", "[0, 1)", "dropout of an adapter's input"},
    {"lora.patterns", Kind::text, "", "",
     "module paths of the layers, as \"**.q_proj, **.v_proj\"; empty: every linear layer but the head"},
    {"lora.rank_stabilized", Kind::flag, "false", "", "the scale is alpha / sqrt(rank)"},

    {"mesh.dp_replicate", Kind::degree, "1", "", "replicas of the sharded model"},
    {"mesh.dp_shard", Kind::degree, "auto", "", "ranks over which FSDP shards"},
    {"mesh.cp", Kind::degree, "1", "", "ranks that share a sequence (context parallel)"},
    {"mesh.tp", Kind::degree, "1", "", "ranks that share each matrix (tensor parallel)"},
    {"mesh.pp", Kind::degree, "1", "", "stages of the pipeline"},
    {"mesh.strategy", Kind::choice, "full_shard", "full_shard|shard_grad_op|no_shard", "what FSDP shards"},
    {"mesh.sequence_parallel", Kind::flag, "false", "", "norms work on parts of the sequence (with tp)"},
    {"mesh.loss_parallel", Kind::flag, "true", "", "logits stay split over the vocabulary (with tp)"},
    {"mesh.context", Kind::choice, "ring", "ring|all_gather|all_to_all", "how attention works over cp"},
    {"mesh.pipeline", Kind::text, "1f1b", "",
     "the schedule of the pipeline: gpipe, 1f1b, interleaved-1f1b, looped-bfs, zb-h1, zb-h2, zbv or "
     "dualpipev"},
    {"mesh.device", Kind::text, "", "", "cpu or cuda; empty: what the machine has"},

    {"data.train", Kind::sources, nullptr, "",
     "token files: a path, a list, or a list of {path, weight, format}; each entry is a source, of equal "
     "weight "
     "unless it has one; the files of a folder or pattern are one source"},
    {"data.validation", Kind::sources, "", "", "token files for [evaluate]"},
    {"data.sequence", Kind::integer, "1024", "1..2147483647", "tokens of a row"},
    {"data.packing", Kind::choice, "stream", "stream|documents",
     "rows cut from the stream of tokens, or whole documents packed into rows, whose bounds attention does "
     "not "
     "cross"},
    {"data.document_end", Kind::integer, "-1", "-1..",
     "the id that ends a document; -1: none, or the files' index"},

    {"data.ignore_differences", Kind::flag, "false", "",
     "continue although the token files are others than those of the checkpoint"},

    {"train.steps", Kind::integer, nullptr, "1..1000000000000", "steps of the whole run"},
    {"train.global_batch", Kind::integer, nullptr, "1..2147483647", "rows of a step, over all ranks"},
    {"train.microbatch", Kind::integer, "0", "0..2147483647", "rows of a rank at a time; 0: all of its rows"},
    {"train.seed", Kind::integer, "1", "0..", "of fresh values and of the order of the data"},
    {"train.param_dtype", Kind::choice, "f32", "f32|bf16|f16", "in which the model computes"},
    {"train.recompute", Kind::choice, "none", "none|selective|full",
     "activations that backward computes again"},
    {"train.activation_offload", Kind::flag, "false", "", "activations wait in host memory"},
    {"train.replay_every", Kind::integer, "0", "0..",
     "steps between two that are computed twice, to find a processor or memory that computes wrongly; 0: "
     "never"},
    {"train.check_replicas_every", Kind::integer, "0", "0..",
     "steps between two comparisons of the ranks that hold the same parameters; 0: never"},
    {"train.max_skips", Kind::integer, "30", "0..",
     "skipped steps in a row (loss or gradient not finite, no label) that end the run with 76; 0: no limit"},
    {"train.max_spikes", Kind::integer, "0", "0..",
     "steps in a row with a loss over spike_ratio times the mean before that end the run with 76; 0: no "
     "limit"},
    {"train.spike_ratio", Kind::number, "3", "(1, inf)",
     "a loss over this many times the mean of about 100 losses before it is a spike"},
    {"train.max_hours", Kind::number, "inf", "(0, inf]", "save and leave with 75 after this time"},

    {"optimizer.name", Kind::text, "adamw", "",
     "the kind, whose options are keys of this section, too: adamw, adamw8bit, muon, lion, sgd, adafactor"},
    {"optimizer.max_grad_norm", Kind::number, "0", "[0, inf)",
     "clip the gradient to this norm; 0: do not clip"},

    {"checkpoint.folder", Kind::text, nullptr, "",
     "the folder of the run: checkpoints, metrics, flight records"},
    {"checkpoint.every", Kind::integer, "0", "0..", "steps between two saves; 0: at the end only"},
    {"checkpoint.keep", Kind::integer, "3", "0..2147483647", "complete checkpoints that stay; 0: all"},
    {"checkpoint.synchronous", Kind::flag, "false", "",
     "write before training goes on, and keep no copy in memory"},
    {"checkpoint.verify", Kind::flag, "true", "", "check every hash at resume"},
    {"checkpoint.strict", Kind::flag, "true", "",
     "refuse a checkpoint with another model or optimizer; false: what fits is taken over, the rest begins "
     "anew "
     "and is listed"},
    {"checkpoint.step", Kind::integer, "-1", "-1..",
     "continue from the checkpoint of this step, and set newer ones aside; -1: from the newest"},
    {"checkpoint.max_file_gb", Kind::number, "5", "[0.001, inf]",
     "size above which model and optimizer files are split"},

    {"evaluate.every", Kind::integer, "0", "0..", "steps between two evaluations; 0: never"},
    {"evaluate.batches", Kind::integer, "20", "1..1000000000", "global batches of an evaluation"},

    {"metrics.every", Kind::integer, "1", "1..2147483647", "steps between two lines"},
    {"metrics.peak_tflops", Kind::number, "0", "[0, inf)",
     "of one rank, for MFU; 0: measured by a short product"},
    {"metrics.norms_every", Kind::integer, "0", "0..",
     "steps between two lines of norms.jsonl, the gradient norm of each parameter, for gw-compare; 0: never"},

    {"sample.prompt", Kind::text, "", "", "text that a byte-level model continues when the run ends"},
    {"sample.tokens", Kind::integer, "240", "1..1000000", "length of the continuation"},
    {"sample.temperature", Kind::number, "0.8", "[0, inf)", "0: the most likely token"},
    {"sample.top_k", Kind::integer, "40", "0..", "choose among this number of tokens; 0: among all"},
};

const Key* find(std::string_view name) {
  const auto at =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& key) { return name == key.name; });
  return at == std::end(kKeys) ? nullptr : at;
}

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

[[noreturn]] void refuse(const std::string& origin, const std::string& why) {
  throw SettingsError(origin + ": " + why);
}

[[noreturn]] void refuse_unknown(const std::string& name, const TomlValue& value) {
  const Key* nearest = std::min_element(std::begin(kKeys), std::end(kKeys), [&](const Key& a, const Key& b) {
    return distance(name, a.name) < distance(name, b.name);
  });
  std::string why = "unknown key " + name;
  if (distance(name, nearest->name) <= 3 + name.size() / 4)
    why += "; did you mean " + std::string(nearest->name) + "?";
  refuse(value.origin, why + " (gw-train --help lists all keys)");
}

std::string shown(const TomlValue& value) {
  return value.type == Type::text ? "\"" + value.text + "\""
         : value.text.empty()     ? name_of(value.type)
                                  : value.text;
}

[[noreturn]] void refuse_type(const Key& key, const TomlValue& value, const char* wanted) {
  refuse(value.origin, std::string(key.name) + " is " + wanted + ", not " + shown(value));
}

double number_in(const std::string& text) {
  if (text == "inf" || text == "+inf") return std::numeric_limits<double>::infinity();
  return std::strtod(text.c_str(), nullptr);
}

// "[0, inf)" and the like.
bool is_inside(const std::string& range, double x) {
  const size_t comma = range.find(',');
  const double low = number_in(range.substr(1, comma - 1));
  const double high = number_in(range.substr(range.find_first_not_of(' ', comma + 1),
                                             range.size() - 1 - range.find_first_not_of(' ', comma + 1)));
  return (range.front() == '[' ? x >= low : x > low) && (range.back() == ']' ? x <= high : x < high);
}

void check_integer(const Key& key, const TomlValue& value) {
  if (value.type != Type::integer) refuse_type(key, value, "a whole number");
  const std::string range = key.range;
  const size_t dots = range.find("..");
  const int64_t x = std::strtoll(value.text.c_str(), nullptr, 10);
  const int64_t least = std::strtoll(range.c_str(), nullptr, 10);
  const std::string most = range.substr(dots + 2);
  if (x < least || (!most.empty() && x > std::strtoll(most.c_str(), nullptr, 10)))
    refuse(value.origin,
           std::string(key.name) + " = " + value.text +
               (most.empty() ? " is below " + std::to_string(least) : " is outside of " + range));
}

void check_number(const Key& key, const TomlValue& value) {
  if (value.type != Type::integer && value.type != Type::number) refuse_type(key, value, "a number");
  if (!is_inside(key.range, number_in(value.text)))
    refuse(value.origin, std::string(key.name) + " = " + value.text + " is outside of " + key.range);
}

std::string joined_words(std::string_view range) {
  std::string all(range);
  for (size_t at = 0; (at = all.find('|', at)) != std::string::npos;) all.replace(at, 1, ", ");
  return all;
}

void check_choice(const Key& key, const TomlValue& value) {
  const std::string range = std::string("|") + key.range + "|";
  if (value.type != Type::text || value.text.find('|') != std::string::npos ||
      range.find("|" + value.text + "|") == std::string::npos)
    refuse(value.origin,
           std::string(key.name) + " is one of " + joined_words(key.range) + ", not " + shown(value));
}

void check_degree(const Key& key, const TomlValue& value) {
  if (value.type == Type::text && value.text == "auto") return;
  if (value.type != Type::integer) refuse_type(key, value, "a number of ranks or \"auto\"");
  const int64_t x = std::strtoll(value.text.c_str(), nullptr, 10);
  if (x < 1 || x > 1'000'000)
    refuse(value.origin, std::string(key.name) + " = " + value.text + " is outside of 1..1000000");
}

DataPath source_of(const Key& key, const TomlValue& value) {
  DataPath source;
  if (value.type == Type::text) {
    source.path = value.text;
  } else if (value.type == Type::table) {
    for (const auto& [name, field] : value.fields) {
      if (name == "path" && field.type == Type::text)
        source.path = field.text;
      else if (name == "format" && field.type == Type::text)
        source.format = field.text;
      else if (name == "weight" && (field.type == Type::number || field.type == Type::integer))
        source.weight = number_in(field.text);
      else
        refuse(field.origin, std::string(key.name) +
                                 " has {path = text, weight = number, format = text}, not " + name + " = " +
                                 shown(field));
    }
  } else {
    refuse_type(key, value, "a path, a list of paths, or a list of {path, weight, format}");
  }
  if (source.path.empty()) refuse(value.origin, std::string(key.name) + " has an entry without a path");
  if (!(source.weight > 0 && std::isfinite(source.weight)))
    refuse(value.origin,
           std::string(key.name) + ": the weight of " + source.path + " is not a finite number above 0");
  return source;
}

std::vector<DataPath> sources_of(const Key& key, const TomlValue& value) {
  std::vector<DataPath> all;
  if (value.type == Type::array) {
    for (const TomlValue& item : value.items) all.push_back(source_of(key, item));
  } else if (value.type != Type::text || !value.text.empty()) {
    all.push_back(source_of(key, value));
  }
  return all;
}

void check(const Key& key, const TomlValue& value) {
  switch (key.kind) {
    case Kind::integer: return check_integer(key, value);
    case Kind::number: return check_number(key, value);
    case Kind::text:
      if (value.type != Type::text) refuse_type(key, value, "a text");
      return;
    case Kind::flag:
      if (value.type != Type::flag) refuse_type(key, value, "true or false");
      return;
    case Kind::choice: return check_choice(key, value);
    case Kind::degree: return check_degree(key, value);
    case Kind::sources:
      if (sources_of(key, value).empty()) refuse(value.origin, std::string(key.name) + " has no path");
      return;
  }
}

// A text key may look like another type on the command line (--checkpoint.folder 17).
TomlValue as_text(const Key& key, const std::string& given) {
  TomlValue value = parse_value(given);
  const bool words = key.kind == Kind::text || key.kind == Kind::choice;
  if (words && value.type != Type::text) {
    value = {};
    value.text = given;
    value.origin = "the command line";
  }
  return value;
}

}  // namespace

std::span<const Key> keys() { return kKeys; }

void Settings::set(const std::string& name, const TomlValue& value) {
  if (const Key* key = find(name)) {
    check(*key, value);
    values_[name] = value;
    return;
  }
  constexpr std::string_view kSection = "optimizer.";
  const bool scalar = value.type != Type::array && value.type != Type::table && value.type != Type::other;
  if (name.rfind(kSection, 0) != 0 || name.find('.', kSection.size()) != std::string::npos || !scalar)
    refuse_unknown(name, value);
  optimizer_[name.substr(kSection.size())] = value;
}

Settings Settings::read(const std::string& path,
                        const std::vector<std::pair<std::string, std::string>>& overrides) {
  Settings settings;
  for (const auto& [name, value] : read_toml(path)) settings.set(name, value);
  for (const auto& [name, given] : overrides) {
    const Key* key = find(name);
    settings.set(name, key != nullptr ? as_text(*key, given) : parse_value(given));
  }
  for (const Key& key : kKeys)
    if (key.standard == nullptr && settings.values_.count(key.name) == 0)
      throw SettingsError(path + ": the key " + key.name + " is missing (" + key.doc + ")");
  if (settings.integer("evaluate.every") > 0 && settings.sources("data.validation").empty())
    throw SettingsError(settings.origin("evaluate.every") +
                        ": evaluate.every = " + settings.text("evaluate.every") +
                        " asks for evaluations, but data.validation names no files for them");
  return settings;
}

const std::string& Settings::text(const char* key) const {
  const auto at = values_.find(key);
  if (at != values_.end()) return at->second.text;
  static const std::map<std::string, std::string> standards = [] {
    std::map<std::string, std::string> all;
    for (const Key& k : kKeys) all[k.name] = k.standard == nullptr ? "" : k.standard;
    return all;
  }();
  return standards.at(key);
}

int64_t Settings::integer(const char* key) const { return std::strtoll(text(key).c_str(), nullptr, 10); }
double Settings::number(const char* key) const { return number_in(text(key)); }
bool Settings::flag(const char* key) const { return text(key) == "true"; }
int Settings::degree(const char* key) const {
  return text(key) == "auto" ? -1 : static_cast<int>(std::strtol(text(key).c_str(), nullptr, 10));
}
bool Settings::given(const char* key) const { return values_.count(key) != 0; }

std::vector<DataPath> Settings::sources(const char* key) const {
  const auto at = values_.find(key);
  return at == values_.end() ? std::vector<DataPath>{} : sources_of(*find(key), at->second);
}

std::string Settings::origin(const std::string& key) const {
  if (const auto at = values_.find(key); at != values_.end()) return at->second.origin;
  const size_t dot = key.find('.');
  if (const auto at = optimizer_.find(key.substr(dot + 1)); at != optimizer_.end()) return at->second.origin;
  return "the default";
}

namespace {

// "key = value" lines as a map. A value is never empty.
std::map<std::string, std::string> parsed_lines(const std::string& lines) {
  std::map<std::string, std::string> all;
  std::istringstream in(lines);
  constexpr std::string_view kBetween = " = ";
  for (std::string line; std::getline(in, line);)
    if (const size_t at = line.find(kBetween); at != std::string::npos)
      all[line.substr(0, at)] = line.substr(at + kBetween.size());
  return all;
}

}  // namespace

std::string numeric_settings(const Settings& s, int ranks) {
  std::string lines = "ranks = " + std::to_string(ranks) + "\n";
  for (const char* key :
       {"model.fp8", "mesh.dp_replicate", "mesh.dp_shard", "mesh.cp", "mesh.tp", "mesh.pp", "mesh.context",
        "train.global_batch", "train.microbatch", "optimizer.max_grad_norm"})
    lines += std::string(key) + " = " + (s.text(key).empty() ? "none" : s.text(key)) + "\n";
  return lines;
}

std::vector<std::string> setting_differences(const std::string& before, const std::string& now) {
  const auto there = parsed_lines(before), here = parsed_lines(now);
  std::vector<std::string> lines;
  for (const auto& [key, value] : here) {
    const auto at = there.find(key);
    if (at != there.end() && at->second != value)
      lines.push_back(key + ": " + at->second + " in the checkpoint, " + value + " now");
  }
  return lines;
}

namespace {

std::string help_line(const std::string& name, const std::string& doc, const std::string& standard) {
  std::string line = "  " + name;
  line.resize(std::max<size_t>(line.size() + 1, 22), ' ');
  return line + doc + (standard.empty() ? "" : " (default " + standard + ")") + "\n";
}

// The library knows the options of each kind, and checks them.
void describe_optimizer_keys(std::ostream& out) {
  std::string kind = "";
  for (const OptimizerKey& key : kOptimizerKeys) {
    if (key.kind != kind) out << "  of " << (kind = key.kind) << ":\n";
    out << help_line(key.name, key.doc, key.standard);
  }
}

}  // namespace

std::string describe_keys() {
  std::ostringstream out;
  std::string section;
  for (const Key& key : kKeys) {
    const std::string name = key.name;
    if (const std::string own = name.substr(0, name.find('.')); own != section) {
      if (section == "optimizer") describe_optimizer_keys(out);
      section = own;
      out << "\n[" << section << "]\n";
    }
    std::string line = "  " + name.substr(section.size() + 1);
    line.resize(std::max<size_t>(line.size() + 1, 22), ' ');
    out << line << key.doc;
    if (key.kind == Kind::choice) out << ": " << joined_words(key.range);
    if (key.standard == nullptr)
      out << " (must be given)";
    else if (*key.standard != '\0')
      out << " (default " << key.standard << ")";
    out << "\n";
  }
  return out.str();
}

}  // namespace gangway::train
