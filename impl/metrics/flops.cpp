#include "metrics/flops.h"

#include <algorithm>
#include <chrono>

namespace gangway {

double flops_per_token(const DecoderOptions& o, int64_t sequence) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  const int64_t kv_heads = o.kv_heads > 0 ? o.kv_heads : o.heads;
  const int64_t head_dim = o.head_dim > 0 ? o.head_dim : o.dim / o.heads;
  const double width = d(o.heads) * d(head_dim), kv_width = d(kv_heads) * d(head_dim);
  const double layer = d(o.dim) * (2 * width + 2 * kv_width) + (o.gated_mlp ? 3 : 2) * d(o.dim) * d(o.ffn);
  const double parameters = d(o.layers) * layer + d(o.dim) * d(o.vocab);
  double reach = 0;  // of all layers together
  for (int64_t i = 0; i < o.layers; ++i) {
    const int64_t window = window_of_layer(o, i);
    reach += d(window > 0 ? std::min(window, sequence) : sequence);
  }
  return 6 * parameters + 6 * width * reach;
}

double measured_peak(Ops& ops, DType dtype, Stream& stream) {
  Device& device = stream.device();
  const int64_t n = device.kind() == DeviceKind::cpu ? 1024 : 8192;
  const auto square = [&](double value) {
    Tensor tensor = Tensor::allocate(device.allocator(), dtype, Shape{n, n});
    ops.fill(tensor, value, stream);
    return tensor;
  };
  GemmArgs args;
  args.a = square(0.5);
  args.b = square(0.5);
  args.c = square(0);
  double best = 0;
  for (int i = 0; i < 4; ++i) {  // the first product only warms up
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    ops.gemm(args, stream);
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double flop = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    if (i > 0) best = std::max(best, flop / seconds);
  }
  return best;
}

}  // namespace gangway
