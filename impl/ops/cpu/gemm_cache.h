// The oneDNN products that one CpuOps has made, by shape.
#pragma once

#include <memory>

namespace gangway::cpu {

class GemmCache {
 public:
  GemmCache();
  ~GemmCache();
  GemmCache(const GemmCache&) = delete;
  GemmCache& operator=(const GemmCache&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gangway::cpu
