#include "gpu_emulation/fiber.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <vector>

namespace gpu_emulation {
namespace {

struct Steps {
  Fiber fiber;
  std::vector<int> taken;
};

TEST(Fiber, GoesOnWhereItPaused) {
  Steps steps;
  steps.fiber.set(
      [](void* data) {
        Steps& all = *static_cast<Steps*>(data);
        for (int i = 0; i < 3; ++i) {
          all.taken.push_back(i);
          all.fiber.pause();
        }
      },
      &steps);
  for (int i = 0; i < 3; ++i) {
    steps.fiber.resume();
    steps.taken.push_back(10 + i);
  }
  EXPECT_EQ(steps.taken, (std::vector<int>{0, 10, 1, 11, 2, 12}));
}

// More functions than the thread sanitizer has calls for each fiber, which is 65536.
TEST(Fiber, TakesAnyNumberOfFunctionsOneAfterAnother) {
  Fiber fiber;
  int count = 0;
  for (int i = 0; i < 100'000; ++i) {
    fiber.set([](void* data) { ++*static_cast<int*>(data); }, &count);
    fiber.resume();
  }
  EXPECT_EQ(count, 100'000);
}

// The address sanitizer forbids accesses around its arrays while the function runs.
int dive(int depth, void (*at_the_end)(Fiber&), Fiber& fiber) {
  volatile char array[100];
  array[depth] = 1;
  if (depth == 0) {
    at_the_end(fiber);
    return array[0];
  }
  return dive(depth - 1, at_the_end, fiber) + array[depth];
}
void dive_and_pause(void* fiber) {
  dive(
      40, [](Fiber& self) { self.pause(); }, *static_cast<Fiber*>(fiber));
}
// Writes where those arrays were. It does not tell the sanitizer first.
__attribute__((no_sanitize("address"))) void fill(void* sum) {
  char array[16384];
  std::memset(array, 1, sizeof(array));
  for (const char byte : array) *static_cast<int*>(sum) += byte;
}
int filled(Fiber& fiber) {
  int sum = 0;
  fiber.set(fill, &sum);
  fiber.resume();
  return sum;
}

TEST(Fiber, HasAllOfItsStackAfterAnException) {
  Fiber fiber;
  fiber.set(
      [](void* data) {
        try {
          dive(
              40, [](Fiber&) { throw std::runtime_error("here"); }, *static_cast<Fiber*>(data));
        } catch (const std::runtime_error&) {
        }
      },
      &fiber);
  fiber.resume();
  EXPECT_EQ(filled(fiber), 16384);
}

TEST(Fiber, BeginsAnewAfterItWasAbandoned) {
  Steps steps;
  for (int i = 0; i < 10'000; ++i) {
    steps.fiber.set(
        [](void* data) {
          Steps& all = *static_cast<Steps*>(data);
          all.taken.push_back(0);
          dive_and_pause(&all.fiber);
        },
        &steps);
    steps.fiber.resume();
    steps.fiber.abandon();
  }
  EXPECT_EQ(steps.taken.size(), 10'000);
  EXPECT_EQ(filled(steps.fiber), 16384);
}

TEST(Fiber, LeavesNothingOnAStackThatWasGivenBack) {
  for (int i = 0; i < 10; ++i) {
    {
      Fiber fiber;
      fiber.set(dive_and_pause, &fiber);
      fiber.resume();
    }
    Fiber at_the_same_place;
    EXPECT_EQ(filled(at_the_same_place), 16384);
  }
}

}  // namespace
}  // namespace gpu_emulation
