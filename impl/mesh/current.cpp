#include "mesh/current.h"

#include <map>
#include <vector>

#include "base/error.h"

namespace gangway {
namespace {

// Ranks may be threads, and a gang's device belongs to one rank. So the defaults are per thread, like the
// stack.
struct ThreadGangs {
  std::vector<GangsPtr> stack;
  std::map<std::string, GangsPtr> defaults;
};

ThreadGangs& of_thread() {
  thread_local ThreadGangs gangs;
  return gangs;
}

}  // namespace

void push_current_gangs(GangsPtr gangs) {
  if (!gangs) fail(Code::invalid_argument, "current gangs: null was pushed");
  of_thread().stack.push_back(std::move(gangs));
}

void pop_current_gangs(const Gangs* gangs) {
  std::vector<GangsPtr>& stack = of_thread().stack;
  if (stack.empty()) fail(Code::invalid_state, "current gangs: the stack of this thread is empty");
  if (stack.back().get() != gangs)
    fail(Code::invalid_state, "current gangs: the top of this thread's stack (depth ", stack.size(),
         ") is another one than the one to pop");
  stack.pop_back();
}

GangsPtr maybe_current_gangs() {
  const std::vector<GangsPtr>& stack = of_thread().stack;
  return stack.empty() ? nullptr : stack.back();
}

GangsPtr current_gangs(const std::string& device) {
  if (GangsPtr top = maybe_current_gangs()) return top;
  GangsPtr& gangs = of_thread().defaults[device];
  if (!gangs) gangs = create_fake_gangs(device);
  return gangs;
}

void set_default_gangs(const std::string& device, GangsPtr gangs) {
  of_thread().defaults[device] = std::move(gangs);
}

}  // namespace gangway
