#include "gpu_emulation/ptx/compile.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <map>
#include <stdexcept>

namespace gpu_emulation::ptx {
namespace {

constexpr std::string_view kSpace = " \t\n\r";

void end_of_thread(const Instruction&, State& s) { s.next = s.program->code.size(); }
void branch(const Instruction& i, State& s) { s.next = i.target; }

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kSpace) + 1 - first));
}

// Cuts at commas outside of brackets.
std::vector<std::string> operands_of(std::string_view text) {
  std::vector<std::string> all;
  int depth = 0;
  size_t from = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ',';
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c != ',' || (depth > 0 && at < text.size())) continue;
    if (const std::string one = trimmed(text.substr(from, at - from)); !one.empty()) all.push_back(one);
    from = at + 1;
  }
  return all;
}

class Compiler {
 public:
  explicit Compiler(const Source& source) : source_(source) {
    program_.file = source.file;
    for (const std::string& name : source.shared) shared_.push_back(name);
  }

  Program run(const std::string& name) {
    const Function& function = found(name);
    program_.parameter_bytes = function.parameter_bytes;
    frame_ = (function.parameter_bytes + 15) / 16 * 16;
    Scope scope;
    for (const Parameter& p : function.parameters) {
      scope.places[p.name] = p.offset;
      program_.parameter_offsets.push_back(p.offset);
    }
    body(function, scope, end_of_thread);
    program_.frame_bytes = frame_;
    return std::move(program_);
  }

 private:
  // The names of one function, or of one call of it.
  struct Scope {
    std::string prefix;                    // of registers
    std::map<std::string, size_t> places;  // in the frame
    std::map<std::string, uint32_t> labels;
    std::vector<std::pair<size_t, std::string>> branches;  // instructions whose targets are not known yet
    std::vector<size_t> returns;
  };

  [[noreturn]] void wrong(const std::string& what) const {
    throw std::runtime_error(source_.file + ":" + std::to_string(line_) + ": " + what);
  }
  const Function& found(const std::string& name) const {
    const auto at = source_.functions.find(name);
    if (at == source_.functions.end()) wrong("no function " + name);
    return at->second;
  }

  // `ret` gets this handler. Null: it continues behind the body.
  void body(const Function& function, Scope& scope, Handler ret) {
    const std::string& text = function.body;
    line_ = function.line;
    for (size_t at = 0; at < text.size();) {
      if (kSpace.find(text[at]) != std::string_view::npos || text[at] == '{' || text[at] == '}') {
        line_ += text[at++] == '\n';
        continue;
      }
      const size_t end = std::min(text.find_first_of(";:", at), text.size());
      const std::string statement = trimmed(std::string_view(text).substr(at, end - at));
      if (end < text.size() && text[end] == ':')
        scope.labels[statement] = static_cast<uint32_t>(program_.code.size());
      else
        this->statement(statement, scope, ret);
      line_ += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                           text.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      at = end + 1;
    }
    for (const auto& [index, label] : scope.branches) {
      const auto target = scope.labels.find(label);
      if (target == scope.labels.end()) wrong("no label " + label);
      program_.code[index].target = target->second;
    }
    for (const size_t index : scope.returns)
      program_.code[index].target = static_cast<uint32_t>(program_.code.size());
  }

  void statement(const std::string& text, Scope& scope, Handler ret) {
    if (text[0] == '.') return directive(text, scope);
    Instruction i;
    i.line = line_;
    std::string_view rest = text;
    if (rest[0] == '@') {
      const size_t end = rest.find_first_of(kSpace);
      i.negated = rest[1] == '!';
      i.guard = slot(std::string(rest.substr(i.negated ? 2 : 1, end - (i.negated ? 2 : 1))), scope);
      rest = rest.substr(rest.find_first_not_of(kSpace, end));
    }
    const size_t end = std::min(rest.find_first_of(kSpace), rest.size());
    Form form;
    form.parts = words_of(rest.substr(0, end), ".");
    const std::vector<std::string> operands = operands_of(rest.substr(end));
    if (form.root() == "call") {
      if (i.guard != kNone) wrong("a call under a condition");
      return call(operands, scope);
    }
    if (form.root() == "ret" || form.root() == "exit") {
      i.run = ret != nullptr ? ret : branch;
      if (ret == nullptr) scope.returns.push_back(program_.code.size());
    } else if (form.root() == "bra") {
      i.run = branch;
      scope.branches.emplace_back(program_.code.size(), operands.at(0));
    } else {
      operate(i, form, operands, scope, text);
    }
    program_.code.push_back(i);
  }

  void operate(Instruction& i, Form& form, const std::vector<std::string>& operands, Scope& scope,
               const std::string& text) {
    size_t count = 0, addresses = 0;
    const auto add = [&](uint32_t slot) {
      if (count == i.at.size()) wrong("too many operands: " + text);
      i.at[count++] = slot;
    };
    for (const std::string& operand : operands) {
      if (operand[0] == '[') {
        if (addresses == i.offset.size()) wrong("too many addresses: " + text);
        add(address(operand, scope, i.offset[addresses++]));
        form.groups.push_back(1);
        continue;
      }
      const std::vector<std::string> all = words_of(operand, "{}|, \t\n");
      for (const std::string& one : all) add(slot(one, scope));
      form.groups.push_back(all.size());
    }
    if (form.has("v2")) i.vector = 2;
    if (form.has("v4")) i.vector = 4;
    for (const auto family : {arithmetic, conversion, memory_access, of_warp})
      if (i.run == nullptr) i.run = family(form);
    if (i.run == nullptr) wrong("an instruction that the interpreter does not know: " + text);
  }

  // ".param .b64 NAME" of a call, ".local .align 8 .b8 NAME[24]"; registers need no declaration.
  void directive(const std::string& text, Scope& scope) {
    const std::vector<std::string> words = words_of(text, " \t\n\r[]");
    if (words[0] == ".reg" || words[0] == ".pragma") return;
    if (words[0] != ".param" && words[0] != ".local") wrong("nothing is known of " + text);
    const bool array = text.find('[') != std::string::npos;
    const std::string& name = words[words.size() - (array ? 2 : 1)];
    size_t bytes = array ? std::stoul(words.back()) : 8;
    frame_ = (frame_ + 15) / 16 * 16;
    scope.places[name] = frame_;
    frame_ += bytes;
  }

  // "(retval0), NAME, (param0, param1)"
  void call(const std::vector<std::string>& operands, Scope& scope) {
    if (operands.size() != 3) wrong("a call of another form than (result), function, (parameters)");
    const Function& function = found(operands[1]);
    const std::vector<std::string> results = words_of(operands[0], "(), \t\n"),
                                   parameters = words_of(operands[2], "(), \t\n");
    if (results.size() != function.results.size() || parameters.size() != function.parameters.size())
      wrong("a call with another number of parameters than " + operands[1] + " has");
    Scope callee;
    callee.prefix = scope.prefix + std::to_string(++calls_) + ":";
    for (size_t k = 0; k < results.size(); ++k)
      callee.places[function.results[k].name] = place(results[k], scope);
    for (size_t k = 0; k < parameters.size(); ++k)
      callee.places[function.parameters[k].name] = place(parameters[k], scope);
    const int line = line_;
    body(function, callee, nullptr);
    line_ = line;
  }

  size_t place(const std::string& name, const Scope& scope) const {
    const auto at = scope.places.find(name);
    if (at == scope.places.end()) wrong("no parameter " + name);
    return at->second;
  }

  // "[NAME+8]", "[%rd1+-8]", "[%r2]"
  uint32_t address(const std::string& operand, Scope& scope, int64_t& offset) {
    const std::vector<std::string> words = words_of(operand, "[]+ \t");
    offset = words.size() > 1 ? std::stoll(words[1]) : 0;
    return slot(words.at(0), scope);
  }

  uint32_t new_slot(uint64_t value) {
    program_.slots.push_back(value);
    return static_cast<uint32_t>(program_.slots.size() - 1);
  }

  // Special registers beside those below; taken as ordinary ones they would be NaN.
  static bool unknown_special(std::string_view name) {
    static const std::vector<std::string> unknown = words_of(
        "%warpid %nwarpid %smid %nsmid %gridid %lanemask_ %clock %globaltimer %envreg "
        "%dynamic_smem %total_smem %cluster %nclusterid %is_explicit_cluster",
        kSpace);
    return std::any_of(unknown.begin(), unknown.end(),
                       [&](const std::string& each) { return name.starts_with(each); });
  }

  // A register that was never written is NaN.
  uint32_t slot(const std::string& name, Scope& scope) {
    if (name[0] == '%') {
      if (unknown_special(name)) wrong("a special register that the interpreter does not know: " + name);
      static constexpr std::string_view kSpecial[] = {"%tid.", "%ntid.", "%ctaid.", "%nctaid.", "%laneid"};
      const bool special = std::any_of(std::begin(kSpecial), std::end(kSpecial),
                                       [&](std::string_view each) { return name.starts_with(each); });
      auto [at, added] = registers_.try_emplace(special ? name : scope.prefix + name, 0);
      if (added) at->second = new_slot(~uint64_t{0});
      if (added && special) program_.special.emplace_back(at->second, name);
      return at->second;
    }
    if (name[0] == '-' || std::isdigit(static_cast<unsigned char>(name[0])) != 0)
      return constant(number(name));
    if (std::find(shared_.begin(), shared_.end(), name) != shared_.end()) return constant(0);
    const size_t in_frame = place(name, scope);
    auto [at, added] = frame_slots_.try_emplace(in_frame, 0);
    if (added) {
      at->second = new_slot(0);
      program_.in_frame.emplace_back(at->second, in_frame);
    }
    return at->second;
  }
  uint32_t constant(uint64_t value) {
    auto [at, added] = constants_.try_emplace(value, 0);
    if (added) at->second = new_slot(value);
    return at->second;
  }
  static uint64_t number(const std::string& text) {
    if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") || text.starts_with("0D"))
      return std::stoull(text.substr(2), nullptr, 16);
    return text[0] == '-' ? static_cast<uint64_t>(std::stoll(text, nullptr, 0))
                          : std::stoull(text, nullptr, 0);
  }

  const Source& source_;
  Program program_;
  std::vector<std::string> shared_;
  std::map<std::string, uint32_t, std::less<>> registers_;
  std::map<uint64_t, uint32_t> constants_;
  std::map<size_t, uint32_t> frame_slots_;
  size_t frame_ = 0;
  int line_ = 0, calls_ = 0;
};

}  // namespace

Program compile(const Source& source, const std::string& name) { return Compiler(source).run(name); }

void execute(State& s) {
  const Instruction* const code = s.program->code.data();
  const size_t end = s.program->code.size();
  for (s.next = 0; s.next < end;) {
    const Instruction& i = code[s.next++];
    if (i.guard == kNone || s.is_true(i.guard) != i.negated) i.run(i, s);
  }
}

}  // namespace gpu_emulation::ptx
