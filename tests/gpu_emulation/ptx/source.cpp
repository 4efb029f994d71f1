#include "gpu_emulation/ptx/source.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gpu_emulation::ptx {
namespace {

constexpr std::string_view kSpace = " \t\n\r";

[[noreturn]] void wrong(const Source& source, int line, const std::string& what) {
  throw std::runtime_error(source.file + ":" + std::to_string(line) + ": " + what);
}

// Replaces comments by spaces, so that lines and offsets stay.
void drop_comments(std::string& text) {
  for (size_t at = 0; (at = text.find('/', at)) != std::string::npos; ++at) {
    const bool block = text[at + 1] == '*';
    if (text[at + 1] != '/' && !block) continue;
    const size_t end = std::min(text.size(), block ? text.find("*/", at) + 2 : text.find('\n', at));
    std::replace_if(
        text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(end),
        [](char c) { return c != '\n'; }, ' ');
  }
}

// Of ".param .align 8 .b8 NAME[40], .param .u64 OTHER".
std::vector<Parameter> parameters_of(std::string_view text, size_t& total) {
  std::vector<Parameter> all;
  total = 0;
  for (const std::string& one : words_of(text, ",")) {
    std::vector<std::string> words = words_of(one, " \t\n\r[]");
    if (words.empty()) continue;
    size_t align = 0, bytes = 0, count = 1;
    std::string name;
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == ".param") continue;
      if (words[i] == ".align")
        align = std::stoul(words[++i]);
      else if (words[i][0] == '.')
        bytes = type_bytes(std::string_view(words[i]).substr(1));
      else if (name.empty())
        name = words[i];
      else
        count = std::stoul(words[i]);
    }
    align = std::max(align, bytes);
    total = (total + align - 1) / align * align;
    all.push_back({name, total, bytes * count});
    total += bytes * count;
  }
  return all;
}

class Parser {
 public:
  Parser(Source& source, const std::string& text) : source_(source), text_(text) {}

  void run() {
    while (skip_space(), at_ < text_.size()) {
      const size_t end = text_.find_first_of("\n;{", at_);
      const std::string_view head(text_.data() + at_, std::min(end, text_.size()) - at_);
      const std::vector<std::string> words = words_of(head, kSpace);
      const std::string& first = words[0];
      if (first == ".version" || first == ".target" || first == ".address_size")
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (std::find(words.begin(), words.end(), ".entry") != words.end() || first == ".func")
        function();
      else if (first == ".extern" && words.size() > 1 && words[1] == ".shared")
        shared(until(";"));
      else
        wrong(source_, line(), "nothing is known of \"" + std::string(head) + "\"");
    }
  }

 private:
  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }
  int line() const {
    return 1 + static_cast<int>(
                   std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
  }
  // Returns the text up to one of the characters, and goes behind it.
  std::string until(std::string_view ends) {
    const size_t end = text_.find_first_of(ends, at_);
    if (end == std::string::npos) wrong(source_, line(), "the file ends too early");
    std::string found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }

  void shared(const std::string& text) {
    const std::vector<std::string> words = words_of(text, " \t\n\r[]");
    source_.shared.push_back(words.back());
  }

  void function() {
    Function function;
    size_t ignored = 0;
    std::string before = until("(");  // ".entry NAME" or ".func " before the results
    std::vector<std::string> words = words_of(before, kSpace);
    function.entry = std::find(words.begin(), words.end(), ".entry") != words.end();
    if (words.back() == ".func") {
      function.results = parameters_of(until(")"), ignored);
      words = words_of(until("("), kSpace);
    }
    const std::string name = words.back();
    function.parameters = parameters_of(until(")"), function.parameter_bytes);
    const std::string rest = until("{;");
    if (text_[at_ - 1] == ';') return;  // a declaration
    const std::vector<std::string> limits = words_of(rest, " \t\n\r,");
    for (size_t i = 0; i + 1 < limits.size(); ++i)
      if (limits[i] == ".maxntid") function.most_threads = std::stoi(limits[i + 1]);
    function.line = line();
    const size_t begin = at_;
    for (int depth = 1; depth > 0; ++at_) {
      at_ = text_.find_first_of("{}", at_);
      if (at_ == std::string::npos) wrong(source_, function.line, "a function does not end");
      depth += text_[at_] == '{' ? 1 : -1;
    }
    function.body = text_.substr(begin, at_ - 1 - begin);
    source_.functions[name] = std::move(function);
  }

  Source& source_;
  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

size_t type_bytes(std::string_view type) {
  if (type == "pred") return 1;
  if (type.size() < 2) return 0;
  const std::string_view width = type.substr(1);
  return width == "8" ? 1 : width == "16" || type == "bf16" ? 2 : width == "32" ? 4 : width == "64" ? 8 : 0;
}

std::vector<std::string> words_of(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(separators, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

Source parse_source(const std::string& file, std::string text) {
  Source source;
  source.file = file;
  drop_comments(text);
  Parser(source, text).run();
  return source;
}

Source read_source(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) throw std::runtime_error(path + " cannot be read");
  return parse_source(path.substr(path.rfind('/') + 1), text.str());
}

}  // namespace gpu_emulation::ptx
