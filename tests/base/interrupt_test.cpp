#include "base/interrupt.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"

namespace gangway {
namespace {

struct Hook {
  int answer = 0, asked = 0, released = 0;
};

int check(void* user) {
  Hook& hook = *static_cast<Hook*>(user);
  ++hook.asked;
  return hook.answer;
}

void release(void* user) { ++static_cast<Hook*>(user)->released; }

TEST(Interrupt, StopsTheWaitOfItsOwnThreadOnly) {
  Hook hook;
  set_interrupt(check, &hook, release);
  poll_interrupt();
  hook.answer = 1;
  std::thread([] { poll_interrupt(); }).join();  // has no hook
  EXPECT_EQ(hook.asked, 1);
  try {
    poll_interrupt();
    ADD_FAILURE() << "the hook said stop";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::caller);
  }
  set_interrupt(nullptr, nullptr, nullptr);
  poll_interrupt();
  EXPECT_EQ(hook.asked, 2);
}

TEST(Interrupt, AShieldKeepsTheHookFromBeingAsked) {
  Hook hook;
  hook.answer = 1;
  set_interrupt(check, &hook, nullptr);
  {
    const InterruptShield outer;
    const InterruptShield inner;
    poll_interrupt();
  }
  EXPECT_EQ(hook.asked, 0);
  EXPECT_THROW(poll_interrupt(), Error);
  set_interrupt(nullptr, nullptr, nullptr);
}

TEST(Interrupt, ReleasesAHookOnceWhenItIsReplacedOrItsThreadEnds) {
  Hook first, second;
  std::thread([&] {
    set_interrupt(check, &first, release);
    set_interrupt(check, &second, release);
    EXPECT_EQ(first.released, 1);
    EXPECT_EQ(second.released, 0);
  }).join();
  EXPECT_EQ(first.released, 1);
  EXPECT_EQ(second.released, 1);
}

}  // namespace
}  // namespace gangway
