// Operations of a device that count their calls by name.
//
// Thread rule: one test at a time; the counts are the process's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "support/ops_interceptor.h"

namespace gangway::nn_testing {

class CountingOps final : public test::OpsInterceptor {
 public:
  explicit CountingOps(std::unique_ptr<Ops> inner) : OpsInterceptor(*inner), owned_(std::move(inner)) {}
  static std::map<std::string, int>& counts() {
    static std::map<std::string, int> all;
    return all;
  }

 protected:
  void intercept(const char* operation, const std::function<void()>& call) override {
    ++counts()[operation];
    call();
  }

 private:
  const std::unique_ptr<Ops> owned_;
};

inline std::unique_ptr<Ops> counting(const std::shared_ptr<Device>& device) {
  return std::make_unique<CountingOps>(make_ops(device));
}

}  // namespace gangway::nn_testing
