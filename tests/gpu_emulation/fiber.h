// Runs a function on a stack of its own, so that it can pause in the middle and continue there later.
// Boost.Context switches the stacks. Sanitizers are told of each switch, because they track the bounds of the
// running stack and the calls on it.
//
// Thread rule: one thread at a time; a paused fiber must continue on the thread that began it.
#pragma once

#include <memory>

namespace gpu_emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Lets the next resume() call function(argument). The fiber must be new or abandoned, or its function must
  // have returned.
  void set(void (*function)(void*), void* argument) {
    function_ = function;
    argument_ = argument;
  }
  // Runs the fiber until it pauses or its function returns.
  void resume();
  // Called inside of the fiber: returns from resume(), and continues at the next resume().
  void pause();
  // Makes a paused fiber new. Its function never continues and frees nothing that it owns.
  void abandon();

 private:
  struct Sanitizer;  // tells a sanitizer of the switches

  void begin();
  char* bottom() const;

  char* const base_;  // a protected page, then the stack
  void* context_ = nullptr;
  void* back_ = nullptr;  // the context that called resume()
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  const std::unique_ptr<Sanitizer> sanitizer_;
};

}  // namespace gpu_emulation
