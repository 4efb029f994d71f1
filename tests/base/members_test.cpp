#include "base/members.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>

namespace gangway {
namespace {

struct Inner {
  int first = 1;
  double second = 2;
};

struct Record {
  std::shared_ptr<int> pointer;
  std::string name = "name";
  Inner inner;
  bool flag = true;
};

struct Largest {
  int a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9, j = 10, k = 11, l = 12, m = 13, n = 14;
};

TEST(Members, AreVisitedInTheirOrder) {
  std::ostringstream order;
  const Largest record;
  with_members(record, [&](const auto&... members) { ((order << members << ' '), ...); });
  EXPECT_EQ(order.str(), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 ");
}

TEST(Members, AStructInsideIsOneMember) {
  const Record record;
  EXPECT_EQ(with_members(record, [](const auto&... members) { return sizeof...(members); }), 4u);
}

TEST(Members, AreThoseOfTheRecordNotCopies) {
  Record record;
  with_members(record, [](auto&, std::string& name, Inner& inner, bool&) {
    name = "changed";
    inner.first = 7;
  });
  EXPECT_EQ(record.name, "changed");
  EXPECT_EQ(record.inner.first, 7);
}

}  // namespace
}  // namespace gangway
