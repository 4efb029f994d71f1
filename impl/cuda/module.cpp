#include <gangway_build_id.h>

#include "base/interfaces.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda_module.h"
#include "gang/nccl/nccl_engine.h"
#include "gang/nccl/settings.h"
#include "ops/cuda/attention_paths.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/families.h"

namespace gangway {
namespace {

void add(DType dtype, const void* x, void* y, size_t count, Stream& stream) {
  const Shape shape = {static_cast<int64_t>(count)};
  const cuda::OnDevice on(stream.device().index());
  cuda::add(Tensor::borrow(stream.device(), const_cast<void*>(x), dtype, shape), 1,
            Tensor::borrow(stream.device(), y, dtype, shape), stream);
}

std::vector<std::shared_ptr<Engine>> make_data_engines(const std::vector<std::shared_ptr<Rank>>& ranks,
                                                       std::span<const std::shared_ptr<Engine>> control,
                                                       const EngineOptions& options) {
  return nccl::make_data_engines(ranks, control, options, add);
}

std::string describe() {
  return cuda::describe_devices() + nccl::describe() + "  " + cuda::describe_cudnn() + "\n";
}

}  // namespace
}  // namespace gangway

extern "C" __attribute__((visibility("default"))) const void* gangway_cuda_module() {
  using namespace gangway;
  static constexpr CudaModule module{kBuildId,
                                     cuda::make_cuda_device,
                                     cuda::make_cuda_ops,
                                     make_data_engines,
                                     describe,
                                     cuda::describe_cuda_paths,
                                     log_to,
                                     tell_nccl};
  return &module;
}
