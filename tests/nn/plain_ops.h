// Every operation in the plainest form, in f64 whatever the tensors hold: layers are tested against their
// mathematics without the kernels. Reads and writes go through whole vectors, so strides and aliasing cannot
// matter.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "nn/plain_attention.h"
#include "nn/plain_values.h"
#include "ops/ops.h"

namespace gangway::nn_testing {

// Tests of layers step with AdamW alone.
class OpsWithoutOptimizers : public Ops {
 public:
#define GANGWAY_OPERATION(name, Args) \
  void name(const Args&, Stream&) override { fail(Code::internal, #name " is not part of these tests"); }
  GANGWAY_OPTIMIZER_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
};

class PlainOps final : public OpsWithoutOptimizers {
 public:
  explicit PlainOps(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }

  void gemm(const GemmArgs& g, Stream&) override {
    const Vector a = get(g.a), b = get(g.b);
    Vector c = g.accumulate ? get(g.c) : Vector(static_cast<size_t>(g.c.count()));
    const Vector bias = g.bias ? get(g.bias) : Vector();
    const auto m = size(g.c, 0), n = size(g.c, 1), k = size(g.a, g.transpose_a ? 0 : 1);
    for (size_t i = 0; i < m; ++i)
      for (size_t j = 0; j < n; ++j) {
        double sum = g.bias ? bias[j] : 0;
        for (size_t l = 0; l < k; ++l)
          sum +=
              (g.transpose_a ? a[l * m + i] : a[i * k + l]) * (g.transpose_b ? b[j * k + l] : b[l * n + j]);
        c[i * n + j] += sum;
      }
    put(g.c, c);
  }

  void rmsnorm(const RmsNormArgs& r, Stream&) override {
    Vector x = get(r.x);
    const Vector w = get(r.weight);
    if (r.residual) {
      const Vector residual = get(r.residual);
      for (size_t i = 0; i < x.size(); ++i) x[i] += residual[i];
      put(r.sum, x);
      x = get(r.sum);
    }
    const size_t d = w.size();
    Vector rstd(x.size() / d), y(x.size());
    const Vector squares = r.squares ? get(r.squares) : Vector();
    for (size_t t = 0; t < rstd.size(); ++t) {
      double square = 0;
      for (size_t i = 0; i < d; ++i) square += x[t * d + i] * x[t * d + i];
      rstd[t] = 1 / std::sqrt((r.squares ? squares[t] / static_cast<double>(r.width)
                                         : square / static_cast<double>(d)) +
                              r.eps);
    }
    put(r.rstd, rstd);
    rstd = get(r.rstd);  // as stored: backward makes y again from it
    for (size_t i = 0; i < y.size(); ++i) y[i] = x[i] * rstd[i / d] * (r.offset + w[i % d]);
    put(r.y, y);
  }

  void rmsnorm_backward(const RmsNormBackwardArgs& r, Stream&) override {
    const Vector dy = get(r.dy), x = get(r.x), rstd = get(r.rstd), dots = r.dots ? get(r.dots) : Vector();
    Vector w = get(r.weight);
    for (double& weight : w) weight += r.offset;
    const size_t d = w.size();
    const double width = static_cast<double>(r.dots ? r.width : r.x.dim(1));
    Vector dx = r.dsum ? get(r.dsum) : Vector(x.size());
    Vector dw = r.dweight ? get(r.dweight) : Vector(d);
    for (size_t t = 0; t < rstd.size(); ++t) {
      double dot = 0;
      for (size_t i = 0; i < d; ++i) dot += dy[t * d + i] * w[i] * x[t * d + i];
      if (r.dots) dot = dots[t];
      for (size_t i = 0; i < d; ++i) {
        const size_t at = t * d + i;
        dx[at] += rstd[t] * (dy[at] * w[i] - x[at] * rstd[t] * rstd[t] * dot / width);
        dw[i] += dy[at] * x[at] * rstd[t];
      }
    }
    if (r.dx) put(r.dx, dx);
    if (r.dweight) put(r.dweight, dw);
    if (!r.y) return;
    Vector y(x.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = x[i] * rstd[i / d] * w[i % d];
    put(r.y, y);
  }

  void row_dot(const RowDotArgs& r, Stream&) override {
    const Vector x = get(r.x), y = get(r.y), w = r.weight ? get(r.weight) : Vector();
    const size_t d = size(r.x, 1);
    Vector out(size(r.x, 0));
    for (size_t i = 0; i < x.size(); ++i) out[i / d] += x[i] * y[i] * (r.weight ? r.offset + w[i % d] : 1);
    put(r.out, out);
  }

  void layernorm(const LayerNormArgs& l, Stream&) override {
    Vector x = get(l.x);
    if (l.residual) {
      const Vector residual = get(l.residual);
      for (size_t i = 0; i < x.size(); ++i) x[i] += residual[i];
      put(l.sum, x);
      x = get(l.sum);
    }
    const size_t d = size(l.x, 1);
    Vector mean(size(l.x, 0)), rstd(mean.size());
    for (size_t i = 0; i < x.size(); ++i) mean[i / d] += x[i] / static_cast<double>(d);
    for (size_t i = 0; i < x.size(); ++i)
      rstd[i / d] += (x[i] - mean[i / d]) * (x[i] - mean[i / d]) / static_cast<double>(d);
    for (double& r : rstd) r = 1 / std::sqrt(r + l.eps);
    put(l.mean, mean);
    put(l.rstd, rstd);
    put(l.y, normalized(x, get(l.mean), get(l.rstd), get(l.weight), get(l.bias)));
  }

  void layernorm_backward(const LayerNormBackwardArgs& l, Stream&) override {
    const Vector dy = get(l.dy), x = get(l.x), w = get(l.weight), mean = get(l.mean), rstd = get(l.rstd);
    const size_t d = size(l.x, 1);
    Vector dx = l.dsum ? get(l.dsum) : Vector(x.size());
    Vector dw = l.dweight ? get(l.dweight) : Vector(d), db = l.dbias ? get(l.dbias) : Vector(d);
    Vector g_mean(mean.size()), gz_mean(mean.size());
    const auto z = [&](size_t i) { return (x[i] - mean[i / d]) * rstd[i / d]; };
    for (size_t i = 0; i < x.size(); ++i) {
      g_mean[i / d] += dy[i] * w[i % d] / static_cast<double>(d);
      gz_mean[i / d] += dy[i] * w[i % d] * z(i) / static_cast<double>(d);
    }
    for (size_t i = 0; i < x.size(); ++i) {
      dx[i] += rstd[i / d] * (dy[i] * w[i % d] - g_mean[i / d] - z(i) * gz_mean[i / d]);
      dw[i % d] += dy[i] * z(i);
      db[i % d] += dy[i];
    }
    if (l.dx) put(l.dx, dx);
    if (l.dweight) put(l.dweight, dw);
    if (l.dbias) put(l.dbias, db);
    if (l.y) put(l.y, normalized(x, mean, rstd, w, get(l.bias)));
  }

  // The first 2 * half elements of each head turn, the others are copied.
  void rope(const RopeArgs& r, Stream&) override {
    const Vector x = get(r.x), cosines = get(r.cos), sines = get(r.sin);
    const Vector positions = r.positions ? get(r.positions) : Vector();
    Vector y = x;
    const size_t heads = static_cast<size_t>(r.heads), width = size(r.x, 1) / heads, half = size(r.cos, 1);
    for (size_t t = 0; t < size(r.x, 0); ++t)
      for (size_t h = 0; h < heads; ++h)
        for (size_t i = 0; i < half; ++i) {
          const size_t position = r.positions ? static_cast<size_t>(positions[t % positions.size()])
                                              : t % static_cast<size_t>(r.sequence);
          const size_t at = (t * heads + h) * width + i, angle = position * half + i;
          const double c = cosines[angle], s = r.inverse ? -sines[angle] : sines[angle];
          y[at] = x[at] * c - x[at + half] * s;
          y[at + half] = x[at + half] * c + x[at] * s;
        }
    put(r.y, y);
  }

  void swiglu(const SwigluArgs& s, Stream&) override {
    Vector gate = get(s.gate);
    const Vector up = get(s.up);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = activated(s.activation, gate[i]).value * up[i];
    put(s.y, gate);
  }

  void swiglu_backward(const SwigluBackwardArgs& s, Stream&) override {
    const Vector gate = get(s.gate), up = get(s.up), dy = get(s.dy);
    Vector dgate(gate.size()), dup(gate.size());
    for (size_t i = 0; i < gate.size(); ++i) {
      const Activated a = activated(s.activation, gate[i]);
      dup[i] = dy[i] * a.value;
      dgate[i] = dy[i] * up[i] * a.slope;
    }
    put(s.dgate, dgate);
    put(s.dup, dup);
    if (!s.y) return;
    Vector y(gate.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = activated(s.activation, gate[i]).value * up[i];
    put(s.y, y);
  }

  void activation(const ActivationArgs& a, Stream&) override {
    Vector x = get(a.x);
    for (double& e : x) e = activated(a.activation, e).value;
    put(a.y, x);
  }

  void activation_backward(const ActivationBackwardArgs& a, Stream&) override {
    const Vector x = get(a.x), dy = get(a.dy);
    Vector dx(x.size()), y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const Activated at = activated(a.activation, x[i]);
      dx[i] = dy[i] * at.slope;
      y[i] = at.value;
    }
    put(a.dx, dx);
    if (a.y) put(a.y, y);
  }

  void dropout(const DropoutArgs& a, Stream&) override {
    Vector x = get(a.x);
    const Vector rows = a.rows ? get(a.rows) : Vector();
    const size_t d = size(a.x, 1);
    for (size_t i = 0; i < x.size(); ++i) {
      const int64_t row =
          a.rows ? static_cast<int64_t>(rows[i / d]) : a.first_row + static_cast<int64_t>(i / d);
      const auto element =
          static_cast<uint64_t>(row * a.columns + a.first_column + static_cast<int64_t>(i % d));
      x[i] = philox_uniform(a.key, element) < a.probability ? 0 : x[i] / (1 - a.probability);
    }
    put(a.y, x);
  }

  void attention(const AttentionArgs& a, Stream&) override { plain_attention::forward(a); }
  void attention_merge(const AttentionMergeArgs&, Stream&) override {
    fail(Code::internal, "attention_merge is not part of these tests");
  }
  void attention_backward(const AttentionBackwardArgs& a, Stream&) override { plain_attention::backward(a); }

  void embedding(const EmbeddingArgs& e, Stream&) override {
    const Vector table = get(e.table), ids = get(e.ids);
    const size_t d = size(e.table, 1);
    GW_CHECK(e.first_row, ==, 0);
    Vector y;
    for (double id : ids)
      y.insert(y.end(), table.begin() + static_cast<long>(id) * static_cast<long>(d),
               table.begin() + (static_cast<long>(id) + 1) * static_cast<long>(d));
    put(e.y, y);
  }

  void embedding_backward(const EmbeddingBackwardArgs& e, Stream&) override {
    const Vector ids = get(e.ids), dy = get(e.dy);
    Vector table = get(e.dtable);
    const size_t d = size(e.dtable, 1);
    for (size_t t = 0; t < ids.size(); ++t)
      for (size_t i = 0; i < d; ++i) table[static_cast<size_t>(ids[t]) * d + i] += dy[t * d + i];
    put(e.dtable, table);
  }

  // Of a single device there are no parts.
  void loss_part(const LossPartArgs&, Stream&) override { fail(Code::internal, "loss_part on one device"); }
  void loss_join(const LossJoinArgs&, Stream&) override { fail(Code::internal, "loss_join on one device"); }
  void divide_by_norm(const DivideByNormArgs&, Stream&) override {
    fail(Code::internal, "divide_by_norm is of Muon");
  }

  void checksum(const ChecksumArgs&, Stream&) override { fail(Code::internal, "checksum on one device"); }

  void head_loss(const HeadLossArgs& h, Stack&, Stream&) override {
    const Vector x = get(h.x), w = get(h.w), labels = get(h.labels);
    const Vector weights = h.terms.weights ? get(h.terms.weights) : Vector(labels.size(), 1);
    Vector log_probs(labels.size());
    const double cap = h.terms.cap, smoothing = h.terms.label_smoothing, z = h.terms.z_loss;
    const size_t tokens = size(h.x, 0), d = size(h.x, 1), vocab = size(h.w, 0);
    Vector dx(x.size()), dw = h.dw && h.dw_accumulate ? get(h.dw) : Vector(w.size());
    double loss = 0, weight = 0;
    for (size_t t = 0; t < tokens; ++t) {
      if (labels[t] == static_cast<double>(h.ignore)) continue;
      Vector p(vocab);
      double sum = 0, mean = 0;
      for (size_t v = 0; v < vocab; ++v) {
        for (size_t i = 0; i < d; ++i) p[v] += x[t * d + i] * w[v * d + i];
        if (cap > 0) p[v] = cap * std::tanh(p[v] / cap);
        sum += std::exp(p[v]);
        mean += p[v] / static_cast<double>(vocab);
      }
      const double lse = std::log(sum), at_label = p[static_cast<size_t>(labels[t])];
      loss += weights[t] * (lse - (1 - smoothing) * at_label - smoothing * mean + z * lse * lse);
      log_probs[t] = at_label - lse;
      weight += weights[t];
      for (size_t v = 0; v < vocab; ++v) {
        const double target = (static_cast<double>(v) == labels[t] ? 1 - smoothing : 0) +
                              smoothing / static_cast<double>(vocab);
        const double slope = cap > 0 ? 1 - p[v] / cap * (p[v] / cap) : 1;
        const double g = (std::exp(p[v]) / sum * (1 + 2 * z * lse) - target) * slope * weights[t] * h.scale;
        for (size_t i = 0; i < d; ++i) {
          dx[t * d + i] += g * w[v * d + i];
          dw[v * d + i] += g * x[t * d + i];
        }
      }
    }
    if (h.loss) *h.loss.data<double>() += loss;
    if (h.weight) *h.weight.data<double>() += weight;
    if (h.dx) put(h.dx, dx);
    if (h.dw) put(h.dw, dw);
    if (h.terms.log_probs) put(h.terms.log_probs, log_probs);
  }

  void adamw(const AdamWArgs& a, Stream&) override {
    Vector p = get(a.p), m = get(a.m), v = get(a.v);
    const Vector g = get(a.g);
    const double step = static_cast<double>(a.control.step), lr = a.control.lr * a.lr_scale;
    for (size_t i = 0; i < p.size(); ++i) {
      const double x = g[i] * a.control.scale * a.control.clip;
      m[i] = a.beta1 * m[i] + (1 - a.beta1) * x;
      v[i] = a.beta2 * v[i] + (1 - a.beta2) * x * x;
      p[i] -= lr * (m[i] / (1 - std::pow(a.beta1, step)) /
                        (std::sqrt(v[i] / (1 - std::pow(a.beta2, step))) + a.eps) +
                    a.weight_decay * p[i]);
    }
    put(a.p, p);
    put(a.m, m);
    put(a.v, v);
  }

  void cast(const Tensor& x, const Tensor& y, Stream&) override { put(y, get(x)); }
  void fill(const Tensor& y, double value, Stream&) override {
    put(y, Vector(static_cast<size_t>(y.count()), value));
  }
  void add(const Tensor& x, double factor, const Tensor& y, Stream&) override {
    Vector sum = get(y);
    const Vector more = get(x);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * more[i];
    put(y, sum);
  }
  void scale(const Tensor& y, double factor, Stream&) override {
    Vector x = get(y);
    for (double& e : x) e *= factor;
    put(y, x);
  }
  void column_sum(const Tensor& x, const Tensor& y, Stream&) override {
    const Vector rows = get(x);
    Vector sum = get(y);
    for (size_t i = 0; i < rows.size(); ++i) sum[i % sum.size()] += rows[i];
    put(y, sum);
  }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream&) override {
    for (double e : get(x)) *out.data<double>() += std::pow(std::fabs(e), p);
  }
  void fill_normal(const Tensor& y, uint64_t key, uint64_t first, double deviation, Stream&) override {
    Vector x(static_cast<size_t>(y.count()));
    philox_normals(key, first, x.size(), deviation, x.data());
    put(y, x);
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream&) override {
    std::vector<int64_t> found(ids.data<int64_t>(), ids.data<int64_t>() + ids.count());
    std::erase(found, ignore);
    std::sort(found.begin(), found.end());
    auto* to = out.data<int64_t>();
    to[0] = found.empty() ? 0 : found.front();
    to[1] = found.empty() ? -1 : found.back();
    to[2] = static_cast<int64_t>(found.size());
  }

 private:
  static Vector normalized(const Vector& x, const Vector& mean, const Vector& rstd, const Vector& weight,
                           const Vector& bias) {
    const size_t d = weight.size();
    Vector y(x.size());
    for (size_t i = 0; i < y.size(); ++i)
      y[i] = (x[i] - mean[i / d]) * rstd[i / d] * weight[i % d] + bias[i % d];
    return y;
  }

  struct Activated {
    double value, slope;
  };
  static Activated activated(Activation kind, double x) {
    const double root = std::sqrt(0.5);
    switch (kind) {
      case Activation::silu: {
        const double s = 1 / (1 + std::exp(-x));
        return {x * s, s * (1 + x * (1 - s))};
      }
      case Activation::gelu_tanh: {
        const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
        return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)};
      }
      case Activation::gelu: {
        const double below = 0.5 * std::erfc(-x * root);
        return {x * below, below + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI)};
      }
      case Activation::tanh: return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
      case Activation::relu: break;
    }
    return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0};
  }

  std::shared_ptr<Device> device_;
};

}  // namespace gangway::nn_testing
