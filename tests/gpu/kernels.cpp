// The time of each operation on a device beside what its memory and its matrix units allow.
//   gpu_kernels [--device cuda] [--tokens 4096] [--divide 1] [--only WORD...] [--once]
//
// Shapes are those of one block of an 8B Llama in bf16. `--divide N` makes them N times smaller, for a software GPU.
// The two ceilings are measured first: a copy inside of the device, bytes read and written, and one large product.
// `--once` runs each operation once and times nothing, for a profiler or a sanitizer.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "ops/ops.h"
#include "tools/arguments.h"

namespace gangway {
namespace {

struct Settings {
  std::string device = "cuda";
  int64_t tokens = 4096, divide = 1;
  std::vector<std::string> only;
  bool once = false;
};

struct Case {
  std::string name;
  double bytes, flops;  // that one call must at least move, and compute
  std::function<void()> run;
};

class Kernels {
 public:
  explicit Kernels(const Settings& s)
      : settings_(s),
        device_(make_device(s.device)),
        ops_(make_ops(device_)),
        temporaries_(device_->allocator()),
        tokens_(s.tokens / s.divide),
        dim_(4096 / s.divide),
        ffn_(14336 / s.divide),
        vocab_(128256 / s.divide),
        width_(s.divide > 8 ? 32 : 128),
        heads_(std::max<int64_t>(dim_ / width_, 4)),
        groups_(std::max<int64_t>(heads_ / 4, 1)) {}

  void run() {
    std::printf(
        "%s: %lld tokens, dim %lld, ffn %lld, vocabulary %lld, %lld heads of %lld, %lld of keys and values\n",
        device_->name().c_str(), number(tokens_), number(dim_), number(ffn_), number(vocab_), number(heads_),
        number(width_), number(groups_));
    if (!settings_.once) measure_ceilings();
    std::printf("%-28s %12s %10s %8s %10s %8s\n", "operation", "us", "GB/s", "of copy", "TFLOP/s", "of peak");
    rows();
    optimizers();
    attention();
    products();
  }

 private:
  static long long number(int64_t value) { return value; }
  Stream& stream() { return device_->stream(); }
  Tensor empty(DType dtype, const Shape& shape) {
    return Tensor::allocate(device_->allocator(), dtype, shape);
  }
  Tensor random(DType dtype, const Shape& shape) {
    Tensor t = empty(dtype, shape);
    ops_->fill_normal(t, ++key_, 0, 1, stream());
    return t;
  }
  Tensor filled(DType dtype, const Shape& shape, double value) {
    Tensor t = empty(dtype, shape);
    ops_->fill(t, value, stream());
    return t;
  }
  static double bytes(std::initializer_list<Tensor> tensors) {
    double sum = 0;
    for (const Tensor& t : tensors) sum += static_cast<double>(t.bytes());
    return sum;
  }

  double seconds(const std::function<void()>& call) {
    const auto timed = [&](int calls) {
      stream().synchronize();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) call();
      stream().synchronize();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    call();
    const double first = timed(2) / 2;
    const int calls = static_cast<int>(std::clamp(0.02 / std::max(first, 1e-9), 1.0, 1000.0));
    std::vector<double> rounds;
    for (int i = 0; i < 5; ++i) rounds.push_back(timed(calls) / calls);
    std::nth_element(rounds.begin(), rounds.begin() + 2, rounds.end());
    return rounds[2];
  }

  void measure_ceilings() {
    const int64_t count = (int64_t{1} << 30) / settings_.divide / settings_.divide;
    const Tensor from = filled(DType::f32, {count / 4}, 1), to = empty(DType::f32, {count / 4});
    copy_rate_ = 2.0 * static_cast<double>(from.bytes()) /
                 seconds([&] { device_->copy(to.raw(), from.raw(), from.bytes(), stream()); });
    const int64_t n = 8192 / settings_.divide;
    GemmArgs g;
    g.a = random(DType::bf16, {n, n});
    g.b = random(DType::bf16, {n, n});
    g.c = empty(DType::bf16, {n, n});
    g.transpose_b = true;
    const auto side = static_cast<double>(n);
    peak_ = 2 * side * side * side / seconds([&] { ops_->gemm(g, stream()); });
    std::printf("ceilings: copy %.0f GB/s, product %lld x %lld x %lld in bf16 %.1f TFLOP/s\n",
                copy_rate_ / 1e9, number(n), number(n), number(n), peak_ / 1e12);
  }

  void show(const Case& c) {
    const auto is_wanted = [&](const std::string& word) { return c.name.find(word) != std::string::npos; };
    if (!settings_.only.empty() && std::none_of(settings_.only.begin(), settings_.only.end(), is_wanted))
      return;
    if (settings_.once) {
      c.run();
      stream().synchronize();
      std::printf("%-28s ran once\n", c.name.c_str());
    } else {
      const double time = seconds(c.run);
      std::printf("%-28s %12.1f %10.0f %7.0f%% %10.1f %7.0f%%\n", c.name.c_str(), time * 1e6,
                  c.bytes / time / 1e9, 100 * c.bytes / time / copy_rate_, c.flops / time / 1e12,
                  100 * c.flops / time / peak_);
    }
    std::fflush(stdout);
  }

  void rows() {
    const DType b = DType::bf16, f = DType::f32;
    const Tensor x = random(b, {tokens_, dim_}), r = random(b, {tokens_, dim_}),
                 y = empty(b, {tokens_, dim_}), sum = empty(b, {tokens_, dim_}),
                 weight = filled(b, {dim_}, 1), bias = filled(b, {dim_}, 0), rstd = empty(f, {tokens_}),
                 mean = empty(f, {tokens_}), dweight = filled(f, {dim_}, 0), dbias = filled(f, {dim_}, 0);
    show({"rmsnorm", bytes({x, r, y, sum}), 0, [&] {
            ops_->rmsnorm({x, r, weight, y, sum, rstd}, stream());
          }});
    show({"rmsnorm_backward", bytes({x, r, y, sum}), 0, [&] {
            RmsNormBackwardArgs args{x, r, weight, rstd, sum, y, dweight, {}};
            ops_->rmsnorm_backward(args, stream());
          }});
    show({"layernorm", bytes({x, r, y, sum}), 0, [&] {
            ops_->layernorm({x, r, weight, bias, y, sum, mean, rstd}, stream());
          }});
    show({"layernorm_backward", bytes({x, r, y, sum}), 0, [&] {
            LayerNormBackwardArgs args{x, r, weight, bias, mean, rstd, sum, y, dweight, dbias, {}};
            ops_->layernorm_backward(args, stream());
          }});
    show({"add", bytes({x, y, y}), 0, [&] { ops_->add(x, 1, y, stream()); }});
    show({"column_sum", bytes({x}), 0, [&] { ops_->column_sum(x, dweight, stream()); }});
    DropoutArgs dropout;
    dropout.x = x;
    dropout.y = y;
    dropout.probability = 0.1;
    dropout.columns = dim_;
    show({"dropout", bytes({x, y}), 0, [&] { ops_->dropout(dropout, stream()); }});

    const Tensor gate = random(b, {tokens_, ffn_}), up = random(b, {tokens_, ffn_}),
                 z = empty(b, {tokens_, ffn_}), dgate = empty(b, {tokens_, ffn_}),
                 dup = empty(b, {tokens_, ffn_});
    show({"swiglu", bytes({gate, up, z}), 0, [&] { ops_->swiglu({gate, up, z}, stream()); }});
    show({"swiglu_backward", bytes({gate, up, z, dgate, dup}), 0, [&] {
            ops_->swiglu_backward({gate, up, z, dgate, dup, {}}, stream());
          }});
    show({"activation gelu_tanh", bytes({gate, z}), 0, [&] { ops_->activation({gate, z}, stream()); }});

    const Tensor ids = filled(DType::i64, {tokens_}, 3), table = random(b, {vocab_, dim_}),
                 dtable = filled(f, {vocab_, dim_}, 0);
    show({"embedding", bytes({x, y}), 0, [&] { ops_->embedding({table, ids, y}, stream()); }});
    show({"embedding_backward", bytes({x, x, x}), 0, [&] {
            ops_->embedding_backward({ids, x, dtable}, stream());
          }});
    HeadLossArgs head;
    head.x = x;
    head.w = table;
    head.labels = ids;
    head.loss = filled(DType::f64, {1}, 0);
    head.weight = filled(DType::f64, {1}, 0);
    head.dx = y;
    head.dw = dtable;
    head.scale = 1 / static_cast<double>(tokens_);
    show({"head_loss", bytes({table, table, dtable, dtable}),
          6.0 * static_cast<double>(tokens_) * static_cast<double>(dim_) * static_cast<double>(vocab_),
          [&] { ops_->head_loss(head, temporaries_, stream()); }});
  }

  void optimizers() {
    const DType f = DType::f32;
    const Tensor p = random(f, {ffn_, dim_}), g = random(f, {ffn_, dim_}), m = filled(f, {ffn_, dim_}, 0),
                 v = filled(f, {ffn_, dim_}, 0), copy = empty(DType::bf16, {ffn_, dim_}),
                 sum = filled(DType::f64, {1}, 0);
    const OptimizerControl control{1e-4, 1, 1, 1};
    AdamWArgs adamw;
    adamw.p = p, adamw.g = g, adamw.m = m, adamw.v = v, adamw.copy = copy, adamw.control = control;
    show(
        {"adamw, f32 moments", bytes({p, p, g, m, m, v, v, copy}), 0, [&] { ops_->adamw(adamw, stream()); }});
    AdamWArgs narrow = adamw;
    narrow.m = filled(DType::bf16, {ffn_, dim_}, 0);
    narrow.v = filled(DType::bf16, {ffn_, dim_}, 0);
    show({"adamw, bf16 moments", bytes({p, p, g, narrow.m, narrow.m, narrow.v, narrow.v, copy}), 0,
          [&] { ops_->adamw(narrow, stream()); }});
    LionArgs lion;
    lion.p = p, lion.g = g, lion.m = m, lion.copy = copy, lion.control = control;
    show({"lion", bytes({p, p, g, m, m, copy}), 0, [&] { ops_->lion(lion, stream()); }});
    show({"norm_power", bytes({g}), 0, [&] { ops_->norm_power(g, 2, sum, stream()); }});
    const Tensor checksum = empty(DType::i64, {1});
    show({"checksum", bytes({p}), 0, [&] { ops_->checksum({.x = p, .sum = checksum}, stream()); }});
    show({"cast f32 to bf16", bytes({p, copy}), 0, [&] { ops_->cast(p, copy, stream()); }});
  }

  void attention() {
    const DType b = DType::bf16;
    const int64_t n = tokens_;
    const Shape of_q{1, n, heads_, width_}, of_k{1, n, groups_, width_};
    const Tensor q = random(b, of_q), k = random(b, of_k), v = random(b, of_k), out = empty(b, of_q),
                 lse = empty(DType::f32, {1, heads_, n}), dout = random(b, of_q), dq = empty(b, of_q),
                 dk = empty(b, of_k), dv = empty(b, of_k);
    const double scale = 1 / std::sqrt(static_cast<double>(width_)),
                 seen = static_cast<double>(n) * static_cast<double>(n) / 2,
                 flops = 4 * seen * static_cast<double>(heads_ * width_);
    show({"attention, causal", bytes({q, k, v, out}), flops, [&] {
            ops_->attention({q, k, v, out, lse, scale}, stream());
          }});
    AttentionBackwardArgs backward{q, k, v, out, lse, dout, dq, dk, dv, scale};
    if (const size_t workspace = ops_->attention_workspace_bytes(backward); workspace > 0)
      backward.workspace = empty(DType::u8, {static_cast<int64_t>(workspace)});
    show({"attention_backward, causal", bytes({q, k, v, out, dout, dq, dk, dv}), 2.5 * flops,
          [&] { ops_->attention_backward(backward, stream()); }});
    const Tensor x = q.reshape({n, heads_ * width_}), y = out.reshape({n, heads_ * width_}),
                 cos = filled(DType::f32, {n, width_ / 2}, 1), sin = filled(DType::f32, {n, width_ / 2}, 0);
    RopeArgs rope;
    rope.x = x, rope.y = y, rope.cos = cos, rope.sin = sin, rope.heads = heads_, rope.sequence = n;
    show({"rope", bytes({x, y}), 0, [&] { ops_->rope(rope, stream()); }});
  }

  // y = x w^T, dx = dy w and dw += dy^T x of each linear layer.
  void products() {
    const struct {
      const char* name;
      int64_t in, out;
    } layers[] = {{"q, o", dim_, heads_ * width_},
                  {"k, v", dim_, groups_ * width_},
                  {"gate, up", dim_, ffn_},
                  {"down", ffn_, dim_}};
    for (const auto& layer : layers) {
      const DType b = DType::bf16;
      const Tensor x = random(b, {tokens_, layer.in}), w = random(b, {layer.out, layer.in}),
                   y = random(b, {tokens_, layer.out}), dw = filled(DType::f32, {layer.out, layer.in}, 0);
      const double flops =
          2.0 * static_cast<double>(tokens_) * static_cast<double>(layer.in) * static_cast<double>(layer.out);
      GemmArgs forward, inputs, weights;
      forward.a = x, forward.b = w, forward.c = y, forward.transpose_b = true;
      inputs.a = y, inputs.b = w, inputs.c = x;
      weights.a = y, weights.b = x, weights.c = dw, weights.transpose_a = weights.accumulate = true;
      const std::string name = layer.name;
      show({"product " + name + ": y", bytes({x, w, y}), flops, [&] { ops_->gemm(forward, stream()); }});
      show({"product " + name + ": dx", bytes({x, w, y}), flops, [&] { ops_->gemm(inputs, stream()); }});
      show(
          {"product " + name + ": dw", bytes({x, y, dw, dw}), flops, [&] { ops_->gemm(weights, stream()); }});
    }
  }

  Settings settings_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Stack temporaries_;
  int64_t tokens_, dim_, ffn_, vocab_, width_, heads_, groups_;
  uint64_t key_ = 0;
  double copy_rate_ = 1, peak_ = 1;
};

}  // namespace
}  // namespace gangway

int main(int argc, char** argv) {
  gangway::Settings settings;
  const gangway::tools::CommandLine line = {
      "",
      "The time of each operation on a device beside what its memory and its matrix units allow.",
      {{"--device", &settings.device, "its name", {.default_shown = true}},
       {"--tokens", &settings.tokens, "rows of the activations", {.default_shown = true}},
       {"--divide",
        &settings.divide,
        "makes every shape so many times smaller",
        {.must = gangway::tools::Integers{1, 128}, .default_shown = true}},
       {"--only", &settings.only, "only operations whose names have one of these words"},
       {"--once", &settings.once, "runs each operation once and times nothing"}}};
  if (const auto status = gangway::tools::read_arguments(line, argc, argv)) return *status;
  try {
    gangway::Kernels(settings).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
