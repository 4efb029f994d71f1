// One rank's step below the C ABI, each operation timed, and its products alone; all in processor time of its
// thread. Arguments: socket path, f32 or bf16. "setup"; "step N" -> "TOTAL name=seconds ..." a step, of the
// operations; "isolated N" -> "LINEAR HEAD OPS": best seconds a step of the linear layers' and of the head's
// products, each shape alone, over N turns.
#include "common/rank.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sstream>

#include <dnnl.h>

#include "device/cpu/openmp.h"
#include "nn/layers.h"
#include "ops/check.h"
#include "optim/optimizer.h"
#include "train/model.h"
#include "train/timed_ops.h"

using namespace gangway;
using namespace gangway::bench;

namespace {

class Step {
 public:
  explicit Step(DType dtype)
      : dtype_(dtype),
        device_(make_device("cpu", {.threads = 1})),
        ops_(make_ops(device_)),
        temporaries_(device_->allocator()),
        frame_(device_->allocator()) {
    DecoderOptions config;
    config.vocab = S32_VOCAB;
    config.dim = S32_DIM;
    config.layers = S32_LAYERS;
    config.heads = S32_HEADS;
    config.kv_heads = S32_KV_HEADS;
    config.ffn = S32_FFN;
    model_ = make_decoder(config);
    for (const NamedParameter& p : named_parameters(*model_)) p.parameter->dtype = dtype;
    materialize(*model_, ops_, 1);
    tokens_ = tensor(DType::i64, {S32_BATCH, S32_SEQUENCE});
    labels_ = tensor(DType::i64, {S32_BATCH, S32_SEQUENCE});
    uint64_t h = 88172645463325252ull;
    for (int64_t i = 0; i < tokens_.count(); ++i) {
      h ^= h << 13, h ^= h >> 7, h ^= h << 17;
      tokens_.data<int64_t>()[i] = static_cast<int64_t>(h % S32_VOCAB);
      labels_.data<int64_t>()[i] = static_cast<int64_t>((h >> 20) % S32_VOCAB);
    }
    masters();
  }

  // One step; the times are in ops_.
  double run() {
    const double start = bench_cpu_seconds(0);
    for (const NamedParameter& p : named_parameters(*model_)) p.parameter->grad->written = false;
    Context ctx{.ops = ops_, .stream = device_->stream(), .temporaries = temporaries_};
    ctx.loss_scale = 1.0 / static_cast<double>(tokens_.count());
    ctx.training = true;
    ctx.fused_loss = true;  // as in train_step
    const Tensor inputs[] = {tokens_, labels_};
    model_->forward(ctx, inputs, &frame_);
    model_->backward(ctx, {}, frame_);
    frame_.run_weight_gradients(ctx);
    frame_.reset();
    update();
    return bench_cpu_seconds(0) - start;
  }

  TimedOps& ops() { return ops_; }
  std::pair<double, double> isolated(int turns) {
    double linear = 0, head = 0;
    for (const auto& [shape, calls] : ops_.products) linear += calls * best(shape, turns, true);
    const int64_t tokens = ops_.head.x.dim(0), vocabulary = S32_VOCAB, width = S32_DIM;
    const DType sum = dtype_ == DType::f64 ? DType::f64 : DType::f32;
    const StackScope scope(temporaries_);
    const int64_t chunk = head_loss_logits(ops_.head, temporaries_).dim(0);
    // Whole, or in the chunks of the fused operation: what is less.
    const auto less = [&](ProductShape whole, ProductShape part) {
      return std::min(best(whole, turns, false),
                      best(part, turns, false) * static_cast<double>(tokens) / static_cast<double>(chunk));
    };
    head += less({tokens, vocabulary, width, false, true, false, sum},
                 {chunk, vocabulary, width, false, true, false, sum});
    head += less({tokens, width, vocabulary, false, false, false, dtype_},
                 {chunk, width, vocabulary, false, false, false, dtype_});
    head += less({vocabulary, width, tokens, true, false, false, sum},
                 {vocabulary, width, chunk, true, false, true, sum});
    return {linear, head};
  }

 private:
  Tensor tensor(DType dtype, const Shape& shape) {
    return Tensor::allocate(device_->allocator(), dtype, shape);
  }
  Tensor random(DType dtype, const Shape& shape) {
    const Tensor t = tensor(dtype, shape);
    ops_.fill_normal(t, 5, 0, 1, device_->stream());
    return t;
  }
  // What a mixed step has beside the model: f32 masters and moments.
  void masters() {
    for (const NamedParameter& p : named_parameters(*model_)) {
      if (dtype_ == DType::bf16) p.parameter->grad = make_accumulator(tensor(DType::f32, p.parameter->shape));
      Master m{tensor(DType::f32, p.parameter->shape), tensor(DType::f32, p.parameter->shape),
               tensor(DType::f32, p.parameter->shape)};
      ops_.cast(p.parameter->value, m.value, device_->stream());
      ops_.fill(m.first, 0, device_->stream());
      ops_.fill(m.second, 0, device_->stream());
      masters_.push_back(m);
    }
  }
  void update() {
    control_.lr = 1e-3;
    ++control_.step;
    size_t i = 0;
    const auto flat = [](const Tensor& t) { return t.reshape(Shape{t.count()}); };
    for (const NamedParameter& p : named_parameters(*model_)) {
      const Master& m = masters_[i++];
      AdamWArgs args{.p = flat(m.value),
                     .g = flat(p.parameter->grad->tensor),
                     .m = flat(m.first),
                     .v = flat(m.second),
                     .copy = flat(p.parameter->value),
                     .control = control_,
                     .weight_decay = 0.1};
      if (dtype_ == DType::f32) {
        args.p = args.copy;
        args.copy = Tensor();
      }
      ops_.adamw(args, device_->stream());
    }
  }

  // Seconds of one product alone, best of `turns`; also by the vendor's plain call in f32, which would take
  // every core if it were let.
  double best(const ProductShape& s, int turns, bool vendor) {
    cpu::set_openmp_threads(1);
    const Tensor a = random(dtype_, s.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k});
    const Tensor b = random(dtype_, s.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n});
    const Tensor c = random(s.c_dtype, {s.m, s.n});
    double least = INFINITY;
    for (int i = 0; i <= turns; ++i) {  // the first one makes the primitive
      double start = bench_cpu_seconds(0);
      ops_.inner().gemm({.a = a,
                         .b = b,
                         .c = c,
                         .bias = {},
                         .transpose_a = s.transpose_a,
                         .transpose_b = s.transpose_b,
                         .accumulate = s.accumulate},
                        device_->stream());
      if (i > 0) least = std::min(least, bench_cpu_seconds(0) - start);
      if (!vendor || i == 0 || dtype_ != DType::f32) continue;
      start = bench_cpu_seconds(0);
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1, a.data<float>(),
                 a.dim(1), b.data<float>(), b.dim(1), s.accumulate ? 1 : 0, c.data<float>(), s.n);
      least = std::min(least, bench_cpu_seconds(0) - start);
    }
    return least;
  }

  struct Master {
    Tensor value, first, second;
  };
  DType dtype_;
  std::shared_ptr<Device> device_;
  TimedOps ops_;
  Stack temporaries_;
  Frame frame_;
  ModulePtr model_;
  Tensor tokens_, labels_;
  std::vector<Master> masters_;
  OptimizerControl control_;
};

std::string run_steps(Step& step, int count) {
  step.ops().seconds.clear();
  step.ops().products.clear();
  double total = 0;
  for (int i = 0; i < count; ++i) total += step.run();
  for (auto& [shape, calls] : step.ops().products) calls /= count;
  std::ostringstream text;
  text << total / count;
  for (const auto& [name, seconds] : step.ops().seconds) text << ' ' << name << '=' << seconds / count;
  return text.str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  bench_driver driver = bench_connect(argv[1], 0, "operations");
  std::optional<Step> step;
  char line[256];
  int count = 1;
  while (bench_command(&driver, line, sizeof line)) {
    try {
      if (std::strcmp(line, "setup") == 0) {
        step.emplace(std::strcmp(argv[2], "bf16") == 0 ? DType::bf16 : DType::f32);
        bench_reply(&driver, "ready");
      } else if (step && std::sscanf(line, "step %d", &count) == 1) {
        bench_reply(&driver, "%s", run_steps(*step, count).c_str());
      } else if (step && std::sscanf(line, "isolated %d", &count) == 1) {
        const auto [linear, head] = step->isolated(count);
        bench_reply(&driver, "%.9g %.9g", linear, head);
      } else {
        bench_reply(&driver, "error: %s", line);
      }
    } catch (const std::exception& error) {
      bench_reply(&driver, "error: %s", error.what());
    }
  }
  return 0;
}
