#include "timeline/kernel_rates.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace gangway::timeline {
namespace {

using Json = nlohmann::json;

constexpr double kSchedulers = 4, kWarp = 32, kFlopsOfProduct = 2.0 * 16 * 8 * 16;

struct Used {
  const char *name, *kernel,
      *instance;  // instance: null for the mean of all, of which none has 128-bit accesses
};
constexpr Used kUsed[] = {
    {"attention", "attention_tensor_core attention_tensor_core_kernel", "bf16, 128, false"},
    {"attention_dq", "attention_backward_tensor_core attention_dq_tensor_core_kernel", "bf16, 128, false"},
    {"attention_dkv", "attention_backward_tensor_core attention_dkv_tensor_core_kernel",
     "bf16, 128, false, true, true"},
    {"attention_along", "attention_backward along_kernel", nullptr},
    {"rmsnorm", "norm rmsnorm_kernel", "bf16, 8"},
    {"rmsnorm_backward", "norm rmsnorm_backward_kernel", "bf16, 8"},
    {"add_partials", "reductions add_partials_kernel", nullptr},
    {"rope", "rope rope_kernel", "bf16, 8"},
    {"swiglu", "swiglu swiglu_kernel", "bf16, 8, false"},
    {"swiglu_backward", "swiglu swiglu_backward_kernel", "bf16, 8, true"},
    {"embedding", "embedding embedding_kernel", "bf16, 8"},
    {"embedding_backward", "embedding embedding_backward_kernel", "bf16, 8"},
    {"head_loss", "head_loss head_loss_rows_kernel", "bf16, true, 4, true"},
    {"adamw", "optimizer adamw_kernel", "float, 4"},
    {"cast", "elementwise cast_kernel", "float, 4"},
    {"add", "elementwise add_kernel", "float, 4"},
    {"scale", "elementwise scale_kernel", "float, 4"},
    {"norm_power", "reductions norm_power_kernel", "float, 4, 1"},  // Power::two
    {"checksum", "reductions checksum_kernel", "4"},
};

InstanceFigures figures_of(const Json& kernel, const char* instance) {
  if (instance == nullptr) {
    const double count = kernel.at("kernels");
    return {0, kernel.at("in_flight").get<double>() / count, kernel.at("resident").get<double>() / count};
  }
  if (const auto on_tensor_cores = kernel.find("hmma"); on_tensor_cores != kernel.end()) {
    const Json& pair = on_tensor_cores->at(instance);
    return {pair.at(0), 0, pair.at(1)};
  }
  const Json& pair = kernel.at("large").at(instance);
  return {0, pair.at(0), pair.at(1)};
}

}  // namespace

KernelRate rate_of(const InstanceFigures& f, const Rates& rates, const Multiprocessors& gpu,
                   Overlap overlap) {
  if (f.instructions == 0)
    return {0, std::min(rates.memory, gpu.count * f.threads * f.in_flight / gpu.latency_s)};
  const double product = kFlopsOfProduct * kSchedulers * gpu.count * gpu.clock / (rates.peak * gpu.mma_share);
  const double others = f.instructions - 1, warps = std::max(1.0, f.threads / kWarp / kSchedulers);
  const double shown = overlap == Overlap::none ? 1 : overlap == Overlap::all ? 0 : 1 / warps;
  const double cycles = std::max(product, others) + shown * std::min(product, others);
  return {kFlopsOfProduct * kSchedulers * gpu.count * gpu.clock / cycles, rates.memory};
}

std::map<std::string, KernelRate> kernel_rates(const std::string& path, const Rates& rates, Overlap overlap) {
  std::map<std::string, KernelRate> all;
  try {
    const Json record = Json::parse(std::ifstream(path));
    for (const Used& used : kUsed)
      all[used.name] = rate_of(figures_of(record.at(used.kernel), used.instance), rates, {}, overlap);
  } catch (const Json::exception& error) {
    fail(Code::invalid_argument, path, ": ", error.what());
  }
  return all;
}

}  // namespace gangway::timeline
