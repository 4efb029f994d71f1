// Handles of the C ABI that are released at the end of their scope.
#pragma once

#include <gangway/gangway.h>

#include <memory>

namespace gangway::train {

template <auto Release>
struct Releaser {
  template <typename T>
  void operator()(T* handle) const {
    Release(handle);
  }
};
template <typename T, auto Release>
using Handle = std::unique_ptr<T, Releaser<Release>>;

using GangsHandle = Handle<gw_gangs, gw_gangs_release>;
using GangHandle = Handle<gw_gang, gw_gang_release>;
using ModelHandle = Handle<gw_module, gw_module_release>;
using OptimizerHandle = Handle<gw_optimizer, gw_optimizer_release>;
using MetricsHandle = Handle<gw_metrics, gw_metrics_release>;
using DatasetHandle = Handle<gw_dataset, gw_dataset_release>;
using CheckpointsHandle = Handle<gw_checkpoints, gw_checkpoints_release>;

// Sets up a sized struct: auto options = fresh(gw_mesh_options_init).
template <typename T>
T fresh(void (*init)(T*, size_t)) {
  T options;
  init(&options, sizeof options);
  return options;
}

}  // namespace gangway::train
