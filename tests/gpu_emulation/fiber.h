// A stack of its own for a function that pauses in the middle and goes on there later. Boost.Context does the switch, and
// sanitizers are told of each: they keep the bounds of the stack that runs, and the calls on it.
//
// Thread rule: one thread at a time; a fiber that pauses goes on on the thread that began it.
#pragma once

#include <memory>

namespace gpu_emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Calls function(argument) at the next resume(). For a fiber that is new, was abandoned, or whose function has returned.
  void set(void (*function)(void*), void* argument) {
    function_ = function;
    argument_ = argument;
  }
  // Into the fiber, until it pauses or its function returns.
  void resume();
  // Out of the fiber, from inside of it, until the next resume().
  void pause();
  // For a fiber that pauses and will never go on there. What its function holds is not given back.
  void abandon();

 private:
  struct Sanitizer;  // what one has to be told

  void begin();
  char* bottom() const;

  char* const base_;  // a closed page, and the stack
  void* context_ = nullptr;
  void* back_ = nullptr;  // who has resumed it
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  const std::unique_ptr<Sanitizer> sanitizer_;
};

}  // namespace gpu_emulation
