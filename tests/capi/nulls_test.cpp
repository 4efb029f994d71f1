// Every entry, with null and zero for every argument, returns a code and a text, or does the documented
// nothing.
#include <gangway/gangway.h>
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

#include "every_entry.h"
#include "facts.h"
#include "small.h"

namespace {

// No hook, no allocator and no works to wait for are allowed.
const std::set<std::string> kTakeNothing = {"gw_interrupt_set", "gw_allocator_set", "gw_work_wait_many"};

// Entries that return no status return nothing for null, and do not crash.
void check(const Entry& entry) {
  const gw_status status = entry.call(entry.function);
  const std::string name = entry.name;
  if (!entry.gives_status) return;
  if (kTakeNothing.count(name) != 0 || kFacts.count(name) != 0) {
    EXPECT_EQ(status, kFacts.count(name) != 0 ? -1 : GW_OK) << name;
    return;
  }
  EXPECT_EQ(status, GW_E_INVALID_ARGUMENT) << name;
  if (name == "gw_last_error") return;  // does not change the last error
  const gw_error_info info = last_error();
  EXPECT_EQ(info.code, GW_E_INVALID_ARGUMENT) << name;
  EXPECT_NE(std::string(info.message), "") << name;
}

TEST(Nulls, GiveACodeAndAText) {
  for (const Entry& entry : kEntries) check(entry);
  EXPECT_GT(std::size(kEntries), 180u);
}

}  // namespace
