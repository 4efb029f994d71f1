// Ranks as processes that go on without those that die.
#pragma once

#include <memory>
#include <vector>

#include "gang/host/joined.h"

namespace gangway::test {

// Works until a rank is lost, and goes on with those that are left, until `last` of them are. What the gang of the last
// ones is, in ranks of the first.
inline std::vector<int> outlive(Joined& joined, size_t last, Report& report) {
  std::vector<int> members(static_cast<size_t>(joined.engine->size()));
  for (size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int>(i);
  const std::shared_ptr<Engine> first = joined.engine;
  for (;;) {
    std::vector<int> rest;
    try {
      std::vector<float> x(10, 1);
      sum(joined, x);
      if (x[0] != static_cast<float>(members.size()))
        fail(Code::internal, "a sum of ", members.size(), " is ", x[0]);
      report.at_ns = now_ns();
      ++report.stage;
      if (members.size() == last) return members;
      continue;
    } catch (const Error& error) {
      if (error.code() != Code::peer_lost) throw;
      for (int r = 0; r < joined.engine->size(); ++r)
        if (r != error.peer) rest.push_back(r);
    }
    joined.engine = joined.engine->shrink(rest);
    for (size_t i = 0; i < rest.size(); ++i) members[i] = members[static_cast<size_t>(rest[i])];
    members.resize(rest.size());
  }
}

}  // namespace gangway::test
