#include <algorithm>

#include "device/gpu_plans.h"
#include "ops/check.h"

namespace gangway {

// Leaves out what ops/cuda/cudnn/attention_graph.cpp excludes for every GPU, as far as shapes tell it.
size_t cudnn_workspace_bytes(const AttentionBackwardArgs& args) {
  constexpr int64_t kTile = 128, kVector = 8, kWidest = 256, kRest = 1024;
  const DType dtype = args.q.dtype();
  const int64_t batch = args.q.dim(0), queries = args.q.dim(1), heads = args.q.dim(2), width = args.q.dim(3);
  const int64_t keys = args.k.dim(1);
  if ((dtype != DType::bf16 && dtype != DType::f16) || args.dq.dtype() != dtype || args.dk.dtype() != dtype)
    return 0;
  if (args.accumulate || args.first_key || args.cap > 0 || args.sinks) return 0;
  if (args.causal && args.q_offset != args.k_offset) return 0;
  if (queries % kTile != 0 || keys % kTile != 0 || width % kVector != 0 || width > kWidest) return 0;
  const double rows = static_cast<double>(batch) * static_cast<double>(heads) * static_cast<double>(queries);
  const double of_row = static_cast<double>(2 * std::max(keys, 2 * width) + 4 * width + 4);
  const double bytes = rows * of_row + kRest;
  return rows == 0 || bytes > static_cast<double>(kMostAttentionWorkspace) ? 0 : static_cast<size_t>(bytes);
}

Tensor head_loss_logits(const HeadLossArgs& args, Stack& temporaries, int64_t most_ids) {
  // Each chunk reads the weight twice and adds to its gradient once. On a CPU the logits take about 16 MiB,
  // so that they stay in a cache: enough rows for the products, which pack the weight, to run at full rate.
  // The number is a multiple of 16 rows, at least 64 and at most 512. On a GPU no cache holds them, and the
  // gradient's traffic decides: they take about 1 GiB, and at least 2,048 rows and at most 4,096.
  const int64_t row =
      std::max<int64_t>(1, most_ids) * static_cast<int64_t>(item_bytes(accumulator(args.x.dtype())));
  const int64_t rows = is_or_plans_for_gpu(temporaries.device())
                           ? std::clamp<int64_t>((int64_t{1} << 30) / row / 128 * 128, 2048, 4096)
                           : std::clamp<int64_t>((int64_t{16} << 20) / row / 16 * 16, 64, 512);
  return temporaries.allocate(accumulator(args.x.dtype()), {std::min(rows, args.x.dim(0)), args.w.dim(0)});
}

Tensor head_loss_logits(const HeadLossArgs& args, Stack& temporaries) {
  return head_loss_logits(args, temporaries, args.w.dim(0));
}

}  // namespace gangway
