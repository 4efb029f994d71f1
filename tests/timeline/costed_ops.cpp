#include "timeline/costed_ops.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "gpu_emulation/log.h"
#include "support/ops_interceptor.h"

namespace gangway::timeline {
namespace {

using gpu_emulation::Cost;

double bytes(std::initializer_list<const Tensor*> tensors) {
  double sum = 0;
  for (const Tensor* const t : tensors)
    if (*t) sum += static_cast<double>(t->bytes());
  return sum;
}
double bytes(const Tensor& t) { return bytes({&t}); }

// The scores of one head that its queries see. Key ranges lie in the device's memory and are not read here. A
// call with ranges counts half of all scores, as a causal mask leaves.
template <typename Args>
double seen_scores(const Args& a) {
  const int64_t queries = a.q.dim(1), keys = a.k.dim(1);
  const double all = static_cast<double>(queries) * static_cast<double>(keys);
  if (a.first_key) return all / 2;
  if (!a.causal) return all;
  double seen = 0;
  for (int64_t i = 0; i < queries; ++i)
    seen += static_cast<double>(std::clamp<int64_t>(a.q_offset + i - a.k_offset + 1, 0, keys));
  return seen;
}
// Of one product over the scores that the queries see.
template <typename Args>
double score_flops(const Args& a) {
  const double rows = static_cast<double>(std::max<int64_t>(1, a.q.dim(1)));
  return 2.0 * static_cast<double>(a.q.count()) / rows * seen_scores(a);
}

class CostedOps final : public test::OpsInterceptor {
 public:
  explicit CostedOps(std::unique_ptr<Ops> inner) : OpsInterceptor(*inner), owned_(std::move(inner)) {}

  void rmsnorm(const RmsNormArgs& a, Stream& s) override {
    costs_ = {{"rmsnorm", 0, bytes({&a.x, &a.residual, &a.weight, &a.y, &a.sum, &a.rstd, &a.squares})}};
    OpsInterceptor::rmsnorm(a, s);
  }
  void row_dot(const RowDotArgs& a, Stream& s) override {
    const double read = a.x.raw() == a.y.raw() ? bytes(a.x) : bytes({&a.x, &a.y});
    costs_ = {{"row_dot", 0, read + bytes({&a.weight, &a.out})}};
    OpsInterceptor::row_dot(a, s);
  }
  void layernorm(const LayerNormArgs& a, Stream& s) override {
    costs_ = {
        {"layernorm", 0, bytes({&a.x, &a.residual, &a.weight, &a.bias, &a.y, &a.sum, &a.mean, &a.rstd})}};
    OpsInterceptor::layernorm(a, s);
  }
  void layernorm_backward(const LayerNormBackwardArgs& a, Stream& s) override {
    costs_ = {{"layernorm_backward", 0,
               bytes({&a.dy, &a.x, &a.weight, &a.bias, &a.mean, &a.rstd, &a.dsum, &a.dx, &a.y})},
              {"add_partials", 0, 256 * bytes({&a.dweight, &a.dbias})}};
    OpsInterceptor::layernorm_backward(a, s);
  }
  void activation(const ActivationArgs& a, Stream& s) override {
    costs_ = {{"activation", 0, bytes({&a.x, &a.y})}};
    OpsInterceptor::activation(a, s);
  }
  void activation_backward(const ActivationBackwardArgs& a, Stream& s) override {
    costs_ = {{"activation_backward", 0, bytes({&a.x, &a.dy, &a.dx, &a.y})}};
    OpsInterceptor::activation_backward(a, s);
  }
  void dropout(const DropoutArgs& a, Stream& s) override {
    costs_ = {{"dropout", 0, bytes({&a.x, &a.y, &a.rows})}};
    OpsInterceptor::dropout(a, s);
  }
  void rmsnorm_backward(const RmsNormBackwardArgs& a, Stream& s) override {
    costs_ = {
        {"rmsnorm_backward", 0, bytes({&a.dy, &a.x, &a.weight, &a.rstd, &a.dsum, &a.dx, &a.y, &a.dots})},
        {"add_partials", 0, 256 * bytes(a.dweight)}};
    OpsInterceptor::rmsnorm_backward(a, s);
  }
  void rope(const RopeArgs& a, Stream& s) override {
    const double rows = static_cast<double>(a.sequence) / static_cast<double>(a.cos.dim(0));
    costs_ = {{"rope", 0, bytes({&a.x, &a.y}) + rows * bytes({&a.cos, &a.sin})}};
    OpsInterceptor::rope(a, s);
  }
  void swiglu(const SwigluArgs& a, Stream& s) override {
    costs_ = {{"swiglu", 0, bytes({&a.gate, &a.up, &a.y})}};
    OpsInterceptor::swiglu(a, s);
  }
  void swiglu_backward(const SwigluBackwardArgs& a, Stream& s) override {
    costs_ = {{"swiglu_backward", 0, bytes({&a.gate, &a.up, &a.dy, &a.dgate, &a.dup, &a.y})}};
    OpsInterceptor::swiglu_backward(a, s);
  }
  void attention(const AttentionArgs& a, Stream& s) override {
    costs_ = {{"attention", 2 * score_flops(a), bytes({&a.q, &a.k, &a.v, &a.out, &a.lse})}};
    OpsInterceptor::attention(a, s);
  }
  // Scores, gradients of the weights and dq; for dk and dv scores and gradients of the weights are made
  // again.
  void attention_backward(const AttentionBackwardArgs& a, Stream& s) override {
    const double product = score_flops(a), read = bytes({&a.q, &a.k, &a.v, &a.dout});
    costs_ = {{"attention_along", 0, bytes({&a.out, &a.dout, &a.lse})},
              {"attention_dsinks", 0, 2 * bytes(a.lse)},
              {"attention_dq", 3 * product, read + bytes(a.dq)},
              {"attention_dkv", 4 * product, read + bytes({&a.dk, &a.dv})}};
    OpsInterceptor::attention_backward(a, s);
  }
  void embedding(const EmbeddingArgs& a, Stream& s) override {
    costs_ = {{"embedding", 0, bytes(a.ids) + 2 * bytes(a.y)}};
    OpsInterceptor::embedding(a, s);
  }
  void embedding_backward(const EmbeddingBackwardArgs& a, Stream& s) override {
    const double rows =
        static_cast<double>(a.dy.count() * static_cast<int64_t>(item_bytes(a.dtable.dtype())));
    costs_ = {{"embedding_backward", 0, bytes({&a.ids, &a.dy}) + 2 * rows}};
    OpsInterceptor::embedding_backward(a, s);
  }
  // Twice read, gradients written. Its products have their own.
  void head_loss(const HeadLossArgs& a, Stack& temporaries, Stream& s) override {
    const double vocabulary = static_cast<double>(a.w.dim(0)), of_logit = a.x.dtype() == DType::f64 ? 8 : 4;
    const double written = a.dx || a.dw ? static_cast<double>(item_bytes(a.x.dtype())) : 0;
    costs_ = {{"head_loss", 0, vocabulary * (2 * of_logit + written), true}};
    OpsInterceptor::head_loss(a, temporaries, s);
  }
  void adamw(const AdamWArgs& a, Stream& s) override {
    costs_ = {{"adamw", 0, bytes({&a.g, &a.copy}) + 2 * bytes({&a.p, &a.m, &a.v})}};
    OpsInterceptor::adamw(a, s);
  }
  void cast(const Tensor& x, const Tensor& y, Stream& s) override {
    costs_ = {{"cast", 0, bytes({&x, &y})}};
    OpsInterceptor::cast(x, y, s);
  }
  void fill(const Tensor& y, double value, Stream& s) override {
    costs_ = {{"fill", 0, bytes(y)}};
    OpsInterceptor::fill(y, value, s);
  }
  void add(const Tensor& x, double factor, const Tensor& y, Stream& s) override {
    costs_ = {{"add", 0, bytes(x) + 2 * bytes(y)}};
    OpsInterceptor::add(x, factor, y, s);
  }
  void scale(const Tensor& y, double factor, Stream& s) override {
    costs_ = {{"scale", 0, 2 * bytes(y)}};
    OpsInterceptor::scale(y, factor, s);
  }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream& s) override {
    costs_ = {{"norm_power", 0, bytes(x)}};
    OpsInterceptor::norm_power(x, p, out, s);
  }
  void checksum(const ChecksumArgs& a, Stream& s) override {
    costs_ = {{"checksum", 0, bytes(a.x)}};
    OpsInterceptor::checksum(a, s);
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& s) override {
    costs_ = {{"id_range", 0, bytes(ids)}};
    OpsInterceptor::id_range(ids, ignore, out, s);
  }

 private:
  void intercept(const char*, const std::function<void()>& call) override {
    gpu_emulation::expect_costs(std::exchange(costs_, {}));
    call();
    gpu_emulation::expect_costs({});
  }

  const std::unique_ptr<Ops> owned_;
  std::vector<Cost> costs_;
};

}  // namespace

std::unique_ptr<Ops> make_costed_ops(std::unique_ptr<Ops> inner) {
  return std::make_unique<CostedOps>(std::move(inner));
}

}  // namespace gangway::timeline
