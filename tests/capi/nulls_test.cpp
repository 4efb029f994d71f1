// Every entry, with null and zero for every argument, returns a code and a text, or does the documented
// nothing.
#include <gangway/gangway.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <type_traits>

#include "facts.h"
#include "small.h"

namespace {

// No hook, no allocator and no works to wait for are allowed.
const std::set<std::string> kTakeNothing = {"gw_interrupt_set", "gw_allocator_set", "gw_work_wait_many"};

template <typename... Arguments>
int check(const char* name, gw_status (*entry)(Arguments...)) {
  const gw_status status = std::apply(entry, std::tuple<Arguments...>{});
  if (kTakeNothing.count(name) != 0 || kFacts.count(name) != 0) {
    EXPECT_EQ(status, kFacts.count(name) != 0 ? -1 : GW_OK) << name;
    return 1;
  }
  EXPECT_EQ(status, GW_E_INVALID_ARGUMENT) << name;
  if (std::string(name) == "gw_last_error") return 1;  // does not change the last error
  const gw_error_info info = last_error();
  EXPECT_EQ(info.code, GW_E_INVALID_ARGUMENT) << name;
  EXPECT_NE(std::string(info.message), "") << name;
  return 1;
}
// Facts, retain, release and init entries return nothing for null, and do not crash.
template <typename Other, typename... Arguments>
requires(!std::is_same_v<Other, gw_status>) int check(const char*, Other (*entry)(Arguments...)) {
  std::apply(entry, std::tuple<Arguments...>{});
  return 1;
}

TEST(Nulls, GiveACodeAndAText) {
  int checked = 0;
#define ENTRY(name) checked += check(#name, name);
#include "entries.inc"
#undef ENTRY
  EXPECT_GT(checked, 180);
}

}  // namespace
