#include "ops/cuda/attention_paths.h"

#include <atomic>

#include "base/config.h"
#include "ops/cuda/families.h"

namespace gangway::cuda {
namespace {

int architecture_of(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

}  // namespace

AttentionPaths::AttentionPaths(int device) : device_(device) {
  static std::atomic<uint64_t> made{0};
  serial_ = ++made;
  if (!config().cudnn) {
    opened_ = true;
    why_none_ = "GANGWAY_CUDNN is not auto";
    return;
  }
  architecture_ = architecture_of(device_);
}

// Opens cuDNN at the first use, because that allocates memory of the device.
Cudnn* AttentionPaths::library() {
  if (opened_) return library_.get();
  try {
    library_ = open_cudnn({.architecture = architecture_, .properties = {}});
  } catch (const Error& error) {  // "auto" means: where it works. describe() reports the reason.
    why_none_ = error.message();
  }
  opened_ = true;
  return library_.get();
}

AttentionPaths::Path AttentionPaths::choose(const AttentionGraph& graph) {
  try {
    std::unique_ptr<CudnnPlan> plan = library_->plan(graph);
    if (plan->workspace_bytes() <= kMostCudnnWorkspace) return {std::move(plan), {}};
    return {nullptr, text("cuDNN needs ", plan->workspace_bytes(), " bytes of workspace, more than ",
                          kMostCudnnWorkspace)};
  } catch (const Error& error) {
    if (error.code() != Code::not_supported) throw;
    return {nullptr, error.message()};
  }
}

template <typename Args>
bool AttentionPaths::run_by_cudnn(const Args& args, Stream& stream) {
  if (opened_ && library_ == nullptr) return false;
  const AttentionCall call = call_of(args);
  if (why_own_kernels(call, architecture_) != nullptr || library() == nullptr) return false;
  auto found = paths_.find(call.graph);
  if (found == paths_.end()) found = paths_.emplace(call.graph, choose(call.graph)).first;
  CudnnPlan* const plan = found->second.plan.get();
  if (plan == nullptr) return false;
  const size_t bytes = plan->workspace_bytes();
  plan->run(call.pointers, bytes == 0 ? nullptr : workspace(stream, bytes), native(stream));
  return true;
}

void AttentionPaths::attention(const AttentionArgs& args, Stream& stream) {
  if (!run_by_cudnn(args, stream)) cuda::attention(args, stream);
}

void AttentionPaths::attention_backward(const AttentionBackwardArgs& args, Stream& stream) {
  if (!run_by_cudnn(args, stream)) cuda::attention_backward(args, stream);
}

std::string AttentionPaths::describe() {
  const OnDevice on(device_);
  if (library() == nullptr) return text("attention: own kernels; no cuDNN: ", why_none_, "\n");
  std::string out = text("attention: ", describe_cudnn(), "; own kernels where\n", all_reasons("  - "));
  for (const auto& [graph, path] : paths_)
    out += text("  ", graph.text(), ": ",
                path.plan != nullptr ? text("cuDNN, ", path.plan->workspace_bytes(), " bytes of workspace")
                                     : text("own kernels: ", path.why),
                "\n");
  return out;
}

}  // namespace gangway::cuda
