// The options of a parameter: those of a custom module's and of a shard group's.
#pragma once

#include <gangway/parameter.h>

#include <memory>
#include <utility>
#include <vector>

#include "callbacks.h"
#include "nn/module.h"

namespace gangway::capi {

// Reads the initialisers of parameters, and frees the `user` object of each distinct gw_init_options once:
// after take(), with the last parameter that uses it; without take(), in the destructor.
class Initializers {
 public:
  Initializers(const gw_parameter_options* parameters, size_t count) noexcept
      : first_(parameters), count_(count) {}
  ~Initializers();
  Init read(const gw_init_options* options);
  void take() noexcept;  // call it when the C function has succeeded

 private:
  struct Held {
    void* user = nullptr;
    gw_free_fn release = nullptr;
    bool taken = false;
    ~Held() {
      if (taken && release != nullptr) release(user);
    }
  };
  class Fill;
  const gw_init_options* at(size_t i) const noexcept;
  const gw_parameter_options* first_;
  size_t count_;
  bool taken_ = false;
  std::vector<std::pair<const gw_init_options*, std::shared_ptr<Held>>> held_;
};
Shape shape_of(const gw_parameter_options& options);

}  // namespace gangway::capi
