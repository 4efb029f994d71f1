#include "gpu_emulation/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <new>

#include "gpu_emulation/sanitizer.h"

#if defined(GPU_EMULATION_ADDRESS)
#include <sanitizer/asan_interface.h>
#elif defined(GPU_EMULATION_THREAD)
#include <sanitizer/tsan_interface.h>
#endif

namespace gpu_emulation {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kGuardBytes = 4096;

char* map_stack() {
  void* const base = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  mprotect(base, kGuardBytes, PROT_NONE);
  return static_cast<char*>(base);
}

}  // namespace

#if defined(GPU_EMULATION_ADDRESS)
// The address sanitizer keeps a fake stack for each fiber, with the frames that it checks for use after their
// return.
struct Fiber::Sanitizer {
  void begin() {}
  void into(const char* bottom) { __sanitizer_start_switch_fiber(&fake_of_back, bottom, kStackBytes); }
  void arrive() { __sanitizer_finish_switch_fiber(fake, &back, &back_bytes); }
  void out() { __sanitizer_start_switch_fiber(&fake, back, back_bytes); }
  void arrive_back() { __sanitizer_finish_switch_fiber(fake_of_back, nullptr, nullptr); }
  // Tells the sanitizer of a switch into the fiber and of the last switch out of it. That frees the fake
  // stack.
  void end(const char* bottom) {
    into(bottom);
    arrive();
    __sanitizer_start_switch_fiber(nullptr, back, back_bytes);
    arrive_back();
    fake = nullptr;
    __asan_unpoison_memory_region(bottom, kStackBytes);  // the zones around variables of its functions
  }

  void *fake = nullptr, *fake_of_back = nullptr;
  const void* back = nullptr;
  size_t back_bytes = 0;
};
#elif defined(GPU_EMULATION_THREAD)
struct Fiber::Sanitizer {
  void begin() { fiber = __tsan_create_fiber(0); }
  void into(const char*) {
    back = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber, 0);
  }
  void arrive() {}
  void out() { __tsan_switch_to_fiber(back, 0); }
  void arrive_back() {}
  void end(const char*) { __tsan_destroy_fiber(fiber); }  // forgets the calls that it is in

  void *fiber = nullptr, *back = nullptr;
};
#else
struct Fiber::Sanitizer {
  void begin() {}
  void into(const char*) {}
  void arrive() {}
  void out() {}
  void arrive_back() {}
  void end(const char*) {}
};
#endif

Fiber::Fiber() : base_(map_stack()), sanitizer_(std::make_unique<Sanitizer>()) { begin(); }
Fiber::~Fiber() {
  sanitizer_->end(bottom());
  munmap(base_, kStackBytes + kGuardBytes);
}

char* Fiber::bottom() const { return base_ + kGuardBytes; }

void Fiber::begin() {
  sanitizer_->begin();
  context_ = make_fcontext(bottom() + kStackBytes, kStackBytes, [](transfer_t from) {
    Fiber& fiber = *static_cast<Fiber*>(from.data);
    fiber.back_ = from.fctx;
    fiber.sanitizer_->arrive();
    for (;;) {  // never returns, because a return from here would end the thread
      fiber.function_(fiber.argument_);
      fiber.pause();
    }
  });
}

void Fiber::resume() {
  sanitizer_->into(bottom());
  context_ = jump_fcontext(context_, this).fctx;
  sanitizer_->arrive_back();
}

void Fiber::pause() {
  sanitizer_->out();
  back_ = jump_fcontext(back_, nullptr).fctx;
  sanitizer_->arrive();
}

void Fiber::abandon() {
  sanitizer_->end(bottom());
  begin();
}

}  // namespace gpu_emulation
