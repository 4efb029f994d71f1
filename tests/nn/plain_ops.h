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
#include "ops/ops.h"
#include "support/host_memory.h"

namespace gangway::nn_testing {

using Vector = std::vector<double>;

inline int64_t place(const Tensor& t, int64_t i) {
  int64_t at = 0;
  for (int d = t.rank() - 1; d >= 0; --d) {
    at += i % t.dim(d) * t.stride(d);
    i /= t.dim(d);
  }
  return at;
}

inline Vector get(const Tensor& t) {
  const test::HostMemory host(t);
  Vector out(static_cast<size_t>(t.count()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t at = place(t, static_cast<int64_t>(i));
    switch (dlpack_code(t.dtype()) << 8 | dlpack_bits(t.dtype())) {
      case 2 << 8 | 64: out[i] = host.data<double>()[at]; break;
      case 2 << 8 | 32: out[i] = host.data<float>()[at]; break;
      case 4 << 8 | 16: out[i] = to_f32(host.data<bf16_t>()[at]); break;
      default: out[i] = static_cast<double>(host.data<int64_t>()[at]);
    }
  }
  return out;
}

inline void put(const Tensor& t, const Vector& from) {
  test::HostMemory host(t);
  GW_CHECK(t.count(), ==, static_cast<int64_t>(from.size()));
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t at = place(t, static_cast<int64_t>(i));
    switch (dlpack_code(t.dtype()) << 8 | dlpack_bits(t.dtype())) {
      case 2 << 8 | 64: host.data<double>()[at] = from[i]; break;
      case 2 << 8 | 32: host.data<float>()[at] = static_cast<float>(from[i]); break;
      case 4 << 8 | 16: host.data<bf16_t>()[at] = to_bf16(static_cast<float>(from[i])); break;
      default: host.data<int64_t>()[at] = static_cast<int64_t>(from[i]);
    }
  }
  host.write();
}

// Tests of layers step with AdamW alone.
class OpsWithoutOptimizers : public Ops {
 public:
#define GANGWAY_OPERATION(name, Args) \
  void name(const Args&, Stream&) override { fail(Code::internal, #name " is not part of these tests"); }
  GANGWAY_OPTIMIZER_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
  void row_dot(const RowDotArgs&, Stream&) override {
    fail(Code::internal, "row_dot is not part of these tests");
  }
  void layernorm(const LayerNormArgs&, Stream&) override {
    fail(Code::internal, "layernorm is not part of these tests");
  }
  void layernorm_backward(const LayerNormBackwardArgs&, Stream&) override {
    fail(Code::internal, "layernorm_backward is not part of these tests");
  }
  void activation(const ActivationArgs&, Stream&) override {
    fail(Code::internal, "activation is not part of these tests");
  }
  void activation_backward(const ActivationBackwardArgs&, Stream&) override {
    fail(Code::internal, "activation_backward is not part of these tests");
  }
  void dropout(const DropoutArgs&, Stream&) override {
    fail(Code::internal, "dropout is not part of these tests");
  }
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
    for (size_t t = 0; t < rstd.size(); ++t) {
      double square = 0;
      for (size_t i = 0; i < d; ++i) square += x[t * d + i] * x[t * d + i];
      rstd[t] = 1 / std::sqrt(square / static_cast<double>(d) + r.eps);
    }
    put(r.rstd, rstd);
    rstd = get(r.rstd);  // as stored: backward makes y again from it
    for (size_t i = 0; i < y.size(); ++i) y[i] = x[i] * rstd[i / d] * w[i % d];
    put(r.y, y);
  }

  void rmsnorm_backward(const RmsNormBackwardArgs& r, Stream&) override {
    const Vector dy = get(r.dy), x = get(r.x), w = get(r.weight), rstd = get(r.rstd);
    const size_t d = w.size();
    Vector dx = r.dsum ? get(r.dsum) : Vector(x.size());
    Vector dw = r.dweight ? get(r.dweight) : Vector(d);
    for (size_t t = 0; t < rstd.size(); ++t) {
      double dot = 0;
      for (size_t i = 0; i < d; ++i) dot += dy[t * d + i] * w[i] * x[t * d + i];
      for (size_t i = 0; i < d; ++i) {
        const size_t at = t * d + i;
        dx[at] += rstd[t] * (dy[at] * w[i] - x[at] * rstd[t] * rstd[t] * dot / static_cast<double>(d));
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

  void rope(const RopeArgs& r, Stream&) override {
    const Vector x = get(r.x), cosines = get(r.cos), sines = get(r.sin);
    Vector y(x.size());
    const size_t heads = static_cast<size_t>(r.heads), width = size(r.x, 1) / heads, half = width / 2;
    for (size_t t = 0; t < size(r.x, 0); ++t)
      for (size_t h = 0; h < heads; ++h)
        for (size_t i = 0; i < half; ++i) {
          const size_t at = (t * heads + h) * width + i,
                       angle = t % static_cast<size_t>(r.sequence) * half + i;
          const double c = cosines[angle], s = r.inverse ? -sines[angle] : sines[angle];
          y[at] = x[at] * c - x[at + half] * s;
          y[at + half] = x[at + half] * c + x[at] * s;
        }
    put(r.y, y);
  }

  void swiglu(const SwigluArgs& s, Stream&) override {
    Vector gate = get(s.gate);
    const Vector up = get(s.up);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    put(s.y, gate);
  }

  void swiglu_backward(const SwigluBackwardArgs& s, Stream&) override {
    const Vector gate = get(s.gate), up = get(s.up), dy = get(s.dy);
    Vector dgate(gate.size()), dup(gate.size());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double sigmoid = 1 / (1 + std::exp(-gate[i]));
      dup[i] = dy[i] * gate[i] * sigmoid;
      dgate[i] = dy[i] * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
    }
    put(s.dgate, dgate);
    put(s.dup, dup);
    if (!s.y) return;
    Vector y(gate.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    put(s.y, y);
  }

  // Scores and probabilities of one query; visible(i) is the number of keys it sees.
  void attention(const AttentionArgs& a, Stream&) override {
    const Vector q = get(a.q), k = get(a.k), v = get(a.v);
    Vector out(q.size()), lse(static_cast<size_t>(a.lse.count()));
    each_query(a, [&](size_t b, size_t i, size_t h, const Heads& n) {
      Vector p = scores(a, q, k, b, i, h, n);
      double sum = 0;
      for (double& s : p) sum += s = std::exp(s);
      for (size_t j = 0; j < p.size(); ++j)
        for (size_t c = 0; c < n.width; ++c) out[n.q_at(b, i, h) + c] += p[j] / sum * v[n.k_at(b, j, h) + c];
      lse[(b * n.heads + h) * n.queries + i] = std::log(sum);
    });
    put(a.out, out);
    put(a.lse, lse);
  }

  void attention_merge(const AttentionMergeArgs&, Stream&) override {
    fail(Code::internal, "attention_merge is not part of these tests");
  }
  void attention_backward(const AttentionBackwardArgs& a, Stream&) override {
    const AttentionArgs f{a.q, a.k, a.v, a.out, a.lse, a.scale, a.causal, a.q_offset, a.k_offset};
    const Vector q = get(a.q), k = get(a.k), v = get(a.v), out = get(a.out), lse = get(a.lse),
                 dout = get(a.dout);
    Vector dq(q.size()), dk(k.size()), dv(v.size());
    each_query(f, [&](size_t b, size_t i, size_t h, const Heads& n) {
      const Vector s = scores(f, q, k, b, i, h, n);
      const size_t at = n.q_at(b, i, h);
      double delta = 0;
      for (size_t c = 0; c < n.width; ++c) delta += dout[at + c] * out[at + c];
      for (size_t j = 0; j < s.size(); ++j) {
        const size_t other = n.k_at(b, j, h);
        const double p = std::exp(s[j] - lse[(b * n.heads + h) * n.queries + i]);
        double dp = 0;
        for (size_t c = 0; c < n.width; ++c) dp += dout[at + c] * v[other + c];
        for (size_t c = 0; c < n.width; ++c) {
          dv[other + c] += p * dout[at + c];
          dq[at + c] += p * (dp - delta) * f.scale * k[other + c];
          dk[other + c] += p * (dp - delta) * f.scale * q[at + c];
        }
      }
    });
    put(a.dq, dq);
    put(a.dk, dk);
    put(a.dv, dv);
  }

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
        const double g =
            (std::exp(p[v]) / sum * (1 + 2 * z * lse) - target) * slope * weights[t] * h.scale;
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
  struct Heads {
    size_t batch, queries, keys, heads, kv_heads, width;
    size_t q_at(size_t b, size_t i, size_t h) const { return ((b * queries + i) * heads + h) * width; }
    size_t k_at(size_t b, size_t j, size_t h) const {
      return ((b * keys + j) * kv_heads + h / (heads / kv_heads)) * width;
    }
  };

  static size_t size(const Tensor& t, int dim) { return static_cast<size_t>(t.dim(dim)); }

  template <typename Body>
  static void each_query(const AttentionArgs& a, const Body& body) {
    const Heads n{size(a.q, 0), size(a.q, 1), size(a.k, 1), size(a.q, 2), size(a.k, 2), size(a.q, 3)};
    for (size_t b = 0; b < n.batch; ++b)
      for (size_t i = 0; i < n.queries; ++i)
        for (size_t h = 0; h < n.heads; ++h) body(b, i, h, n);
  }

  static Vector scores(const AttentionArgs& a, const Vector& q, const Vector& k, size_t b, size_t i, size_t h,
                       const Heads& n) {
    Vector s(a.causal ? i + 1 : n.keys);
    for (size_t j = 0; j < s.size(); ++j)
      for (size_t c = 0; c < n.width; ++c) s[j] += a.scale * q[n.q_at(b, i, h) + c] * k[n.k_at(b, j, h) + c];
    return s;
  }

  std::shared_ptr<Device> device_;
};

}  // namespace gangway::nn_testing
