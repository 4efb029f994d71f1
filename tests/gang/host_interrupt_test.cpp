// The caller's interrupt hook in calls of the host engine; ranks as threads.
#include <optional>

#include "base/interrupt.h"
#include "gang/host_threads.h"

namespace gangway::test {
namespace {

// While it lives, this thread's waits are asked to end.
struct Interrupt {
  Interrupt() {
    set_interrupt([](void*) { return 1; }, nullptr, nullptr);
  }
  ~Interrupt() { set_interrupt(nullptr, nullptr, nullptr); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
};

template <typename Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "");
}

TEST(HostInterrupt, OneWhileAGangIsMadeBreaksTheParentOnEveryRank) {
  for (const bool shared : {false, true}) {
    ThreadRanks ranks(2);
    Meeting interrupted(2);
    ranks.run([&](int r, Engine& engine) {
      const std::vector<int> both{0, 1};
      if (r == 1) interrupted.come();
      std::optional<Interrupt> interrupt;
      if (r == 0) interrupt.emplace();
      const Error error = error_of([&] {
        if (shared)
          engine.allocate_shared(4096);
        else
          engine.create(both);
      });
      interrupt.reset();
      if (r == 0) interrupted.come();
      EXPECT_EQ(error.code(), r == 0 ? Code::caller : Code::aborted) << error.message();
      if (r == 1) {
        EXPECT_EQ(error.message(),
                  "gang: aborted by rank 0: the wait was ended by the caller's interrupt hook");
      }
      ASSERT_TRUE(engine.error());
    });
  }
}

}  // namespace
}  // namespace gangway::test
