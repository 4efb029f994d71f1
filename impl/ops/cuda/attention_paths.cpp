#include "ops/cuda/attention_paths.h"

#include <atomic>

#include "base/config.h"
#include "base/log.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/memory.h"
#include "ops/check.h"
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

AttentionPaths::AttentionPaths(Device& device) : owner_(device), device_(device.index()) {
  static std::atomic<uint64_t> made{0};
  serial_ = ++made;
  if (!config().cudnn) {
    opened_ = true;
    why_none_ = "GANGWAY_CUDNN is 0";
    return;
  }
  architecture_ = architecture_of(device_);
}

// Opens cuDNN at the first use, because that allocates memory of the device.
Cudnn* AttentionPaths::library() {
  if (opened_) return library_.get();
  const std::lock_guard lock(mutex_);
  if (opened_) return library_.get();
  try {
    library_ = open_cudnn({.architecture = architecture_, .properties = {}});
    tell("attention by ", describe_cudnn(), ", by own kernels where it takes no call");
  } catch (const Error& error) {  // "auto" means: where it works
    why_none_ = error.message();
    tell("attention by own kernels: ", why_none_);
  }
  opened_ = true;
  return library_.get();
}

template <typename... Parts>
void AttentionPaths::tell(const Parts&... parts) const {
  log(LogLevel::info, text("device cuda:", device_, ": ", parts...));
}

bool AttentionPaths::takes(const AttentionCall& call) {
  if (opened_ && library_ == nullptr) return false;
  return why_own_kernels(call, architecture_) == nullptr && library() != nullptr;
}

size_t AttentionPaths::workspace_bytes(const AttentionBackwardArgs& args) {
  const OnDevice on(device_);
  const size_t bytes = cudnn_workspace_bytes(args);
  if (bytes == 0 || (!opened_ && device_memory(owner_).is_captured())) return 0;
  return takes(call_of(args)) ? bytes : 0;
}

AttentionPaths::Path AttentionPaths::choose(const AttentionGraph& graph, size_t most) {
  Path path;
  try {
    path.plan = library_->plan(graph);
    if (const size_t bytes = path.plan->workspace_bytes(); bytes > most) {
      path.plan.reset();
      path.needs = bytes;
      path.why = text("cuDNN needs ", bytes, " bytes of workspace, and the call has ", most);
    }
  } catch (const Error& error) {
    if (error.code() != Code::not_supported) throw;
    path.why = error.message();
  }
  if (path.plan == nullptr) tell("own kernels compute ", graph.text(), ": ", path.why);
  return path;
}

bool AttentionPaths::run_by_cudnn(const AttentionCall& call, const Room& room, Stream& stream) {
  if ((!opened_ && is_captured(stream)) || !takes(call)) return false;
  const size_t most = room.at == nullptr ? kStreamWorkspaceBytes : room.bytes;
  auto found = paths_.find(call.graph);
  const bool fits_now = found != paths_.end() && found->second.needs != 0 && found->second.needs <= most;
  if (found == paths_.end() || fits_now) {
    if (is_captured(stream)) return false;
    found = paths_.insert_or_assign(call.graph, choose(call.graph, most)).first;
  }
  CudnnPlan* const plan = found->second.plan.get();
  if (plan == nullptr || plan->workspace_bytes() > most) return false;
  const size_t bytes = plan->workspace_bytes();
  void* const at = bytes == 0 ? nullptr : room.at == nullptr ? workspace(stream, bytes) : room.at;
  plan->run(call.pointers, at, native(stream));
  return true;
}

// cuDNN wants more than the alignment of temporaries.
AttentionPaths::Room AttentionPaths::room_of(const AttentionBackwardArgs& args) {
  if (!args.workspace) return {};
  constexpr size_t kAlignment = 256;
  Room room{args.workspace.raw(), args.workspace.bytes()};
  if (std::align(kAlignment, 0, room.at, room.bytes) == nullptr) return {};
  return room;
}

void AttentionPaths::attention(const AttentionArgs& args, Stream& stream) {
  if (!run_by_cudnn(call_of(args), {}, stream)) cuda::attention(args, stream);
}

void AttentionPaths::attention_backward(const AttentionBackwardArgs& args, Stream& stream) {
  if (!run_by_cudnn(call_of(args), room_of(args), stream)) cuda::attention_backward(args, stream);
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
