#include "parallel/plan.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "base/line.h"

namespace gangway {
namespace {

using Kind = Placement::Kind;

constexpr TensorStyle kStyles[] = {TensorStyle::replicate,     TensorStyle::colwise,
                                   TensorStyle::rowwise,       TensorStyle::sequence_parallel,
                                   TensorStyle::prepare_input, TensorStyle::prepare_output,
                                   TensorStyle::headwise};

bool prepares(TensorStyle style) {
  return style == TensorStyle::prepare_input || style == TensorStyle::prepare_output;
}

bool is_dim(int dim) { return dim >= -kMaxDims && dim < kMaxDims; }

// Reads one line of a plan.
class Reader {
 public:
  Reader(std::string_view line, int number) : line_(line), number_(number) {}

  PlanRow row() {
    const size_t arrow = line_.find("->");
    if (arrow == std::string_view::npos) refuse("\"->\" is missing between pattern and style");
    PlanRow row;
    row.pattern = trimmed(line_.substr(0, arrow));
    std::vector<std::string_view> parts = split(line_.substr(arrow + 2));
    read_style(parts[0], row);
    for (size_t i = 1; i < parts.size(); ++i) read_option(parts[i], row);
    return row;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Code::invalid_argument, "plan line ", number_, " \"", trimmed(line_), "\": ", parts...);
  }

  // Splits at commas, or at `mark`, outside of parentheses. There is at least one part.
  static std::vector<std::string_view> split(std::string_view s, char mark = ',') {
    std::vector<std::string_view> parts;
    int depth = 0;
    size_t from = 0;
    for (size_t i = 0; i <= s.size(); ++i) {
      if (i == s.size() || (s[i] == mark && depth == 0)) {
        parts.push_back(trimmed(s.substr(from, i - from)));
        from = i + 1;
      } else if (s[i] == '(' || s[i] == ')') {
        depth += s[i] == '(' ? 1 : -1;
      }
    }
    return parts;
  }

  void read_style(std::string_view word, PlanRow& row) const {
    const size_t open = word.find('(');
    const std::string_view given = trimmed(word.substr(0, open));
    const auto* const style =
        std::find_if(std::begin(kStyles), std::end(kStyles), [&](TensorStyle s) { return given == name(s); });
    if (style == std::end(kStyles)) {
      std::string known;
      for (const TensorStyle s : kStyles) known += (known.empty() ? "" : ", ") + std::string(name(s));
      refuse("style \"", given, "\" is unknown; the styles are ", known);
    }
    row.style = *style;
    if (prepares(row.style) != (open != std::string_view::npos))
      refuse(name(row.style),
             prepares(row.style) ? " takes two layouts in parentheses" : " takes no parentheses");
    if (!prepares(row.style)) return;
    if (word.back() != ')') refuse("the closing parenthesis is missing");
    const std::vector<std::string_view> inputs = split(word.substr(open + 1, word.size() - open - 2), ';');
    if (inputs.size() > 1 && row.style != TensorStyle::prepare_input)
      refuse(name(row.style), " takes one pair of layouts, but got ", inputs.size(), " pairs of layouts");
    const PlanRow::Further first = pair(inputs[0], row.style);
    row = make_plan_row(std::move(row.pattern), row.style, first.comes, first.takes);
    for (size_t i = 1; i < inputs.size(); ++i)
      row.further.push_back(inputs[i].empty() ? std::nullopt : std::optional(pair(inputs[i], row.style)));
  }

  PlanRow::Further pair(std::string_view words, TensorStyle style) const {
    const std::vector<std::string_view> layouts = split(words);
    if (layouts.size() != 2) refuse(name(style), " takes two layouts, but got ", layouts.size());
    return {layout(layouts[0]), layout(layouts[1])};
  }

  void read_option(std::string_view word, PlanRow& row) const {
    const size_t space = word.find_first_of(" \t");
    const std::string_view key = word.substr(0, space);
    const std::string_view value =
        space == std::string_view::npos ? std::string_view() : trimmed(word.substr(space));
    if (key != "input" && key != "output")
      refuse("\"", word, "\" is neither \"input LAYOUT\" nor \"output LAYOUT\"");
    if (prepares(row.style) || row.style == TensorStyle::replicate)
      refuse(name(row.style), " takes no ", key);
    std::optional<ValueLayout>& place = key == "input" ? row.input : row.output;
    if (place) refuse(key, " is given twice");
    place = key == "output" && value == "local"   ? made_by(row.style)
            : key == "output" && value == "whole" ? ValueLayout::replicate()
                                                  : layout(value);
  }

  static ValueLayout made_by(TensorStyle style) {
    return style == TensorStyle::colwise    ? ValueLayout::shard(-1)
           : style == TensorStyle::rowwise  ? ValueLayout::partial()
           : style == TensorStyle::headwise ? ValueLayout::shard(2)
                                            : ValueLayout::shard(1);
  }

  ValueLayout layout(std::string_view word) const {
    if (word == "Replicate") return ValueLayout::replicate();
    if (word == "Varying") return ValueLayout::varying();
    if (word == "Partial") return ValueLayout::partial();
    constexpr std::string_view open = "Shard(";
    int dim = 0;
    if (word.starts_with(open) && word.ends_with(')')) {
      const std::string_view digits = trimmed(word.substr(open.size(), word.size() - open.size() - 1));
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), dim);
      if (error == std::errc() && end == digits.data() + digits.size() && is_dim(dim))
        return ValueLayout::shard(dim);
    }
    refuse("layout \"", word, "\" is unknown; the layouts are Replicate, Varying, Partial and Shard(d)");
  }

  std::string_view line_;
  int number_;
};

}  // namespace

const char* name(TensorStyle style) noexcept {
  switch (style) {
    case TensorStyle::replicate: return "replicate";
    case TensorStyle::colwise: return "colwise";
    case TensorStyle::rowwise: return "rowwise";
    case TensorStyle::sequence_parallel: return "sequence_parallel";
    case TensorStyle::prepare_input: return "prepare_input";
    case TensorStyle::prepare_output: return "prepare_output";
    case TensorStyle::headwise: return "headwise";
  }
  return "unknown";
}

std::string ValueLayout::text() const {
  switch (kind) {
    case Kind::shard: return "Shard(" + std::to_string(dim) + ")";
    case Kind::replicate: return "Replicate";
    case Kind::partial: return "Partial";
    case Kind::varying: return "Varying";
  }
  return "unknown";
}

std::vector<PlanRow> plan_from_text(std::string_view text) {
  std::vector<PlanRow> rows;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string_view content = line.substr(0, line.find('#'));
    if (!trimmed(content).empty()) rows.push_back(Reader(content, number).row());
  }
  return rows;
}

PlanRow make_plan_row(std::string pattern, TensorStyle style, std::optional<ValueLayout> input,
                      std::optional<ValueLayout> output) {
  for (const std::optional<ValueLayout>& layout : {input, output})
    if (layout && layout->kind == Kind::shard && !is_dim(layout->dim))
      fail(Code::invalid_argument, "a value has no dim ", layout->dim, "; dims are ", -kMaxDims, " to ",
           kMaxDims - 1);
  PlanRow row{std::move(pattern), style, input, output, {}, {}};
  if (style == TensorStyle::replicate && (input || output))
    fail(Code::invalid_argument, name(style), " takes no ", input ? "input" : "output");
  if (!prepares(style)) return row;
  if (!input || !output)
    fail(Code::invalid_argument, name(style), " takes two layouts, but ", input ? "output" : "input",
         " is missing");
  const bool before = style == TensorStyle::prepare_input;
  row.inner = before ? *output : *input;
  (before ? row.output : row.input).reset();
  return row;
}

std::string text(const PlanRow& row) {
  std::string words = row.pattern + " -> " + name(row.style);
  if (row.style == TensorStyle::prepare_input) {
    words += "(" + row.input.value_or(ValueLayout()).text() + ", " + row.inner.text();
    for (const std::optional<PlanRow::Further>& input : row.further)
      words += input ? "; " + input->comes.text() + ", " + input->takes.text() : std::string(";");
    return words + ")";
  }
  if (row.style == TensorStyle::prepare_output)
    return words + "(" + row.inner.text() + ", " + row.output.value_or(ValueLayout()).text() + ")";
  if (row.input) words += ", input " + row.input->text();
  if (row.output) words += ", output " + row.output->text();
  return words;
}

std::string plan_to_text(const std::vector<PlanRow>& rows) {
  size_t width = 0;
  for (const PlanRow& row : rows) width = std::max(width, row.pattern.size());
  std::string all;
  for (const PlanRow& row : rows) {
    std::string line = text(row);
    line.insert(row.pattern.size(), width - row.pattern.size(), ' ');
    all += line + "\n";
  }
  return all;
}

}  // namespace gangway
