// Attention by its definition, in f64 and score by score, and the tensors of one call.
#pragma once

#include <limits>

#include "ops/kernel_testing.h"

namespace gangway::attention_testing {

using namespace ops_testing;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Values = std::vector<double>;

struct Case {
  int64_t batch, sq, sk, heads, groups, width;
  bool causal = true;
  int64_t q_offset = 0, k_offset = 0;
  // With documents or a window the call has key ranges. Every document has `document` tokens, of which the
  // last `padding` see nothing and are not seen. Row b begins 7 b tokens later in its documents, unless the
  // rows share their ranges. A query sees `window` keys, itself included.
  int64_t document = 0, window = 0, padding = 0;
  bool shared = false;
  double cap = 0;
  bool sinks = false;

  struct Range {
    int64_t first, end;
  };

  double scale() const { return 0.9 / std::sqrt(static_cast<double>(width)); }
  bool ranges() const { return document > 0 || window > 0; }
  Range range(int64_t b, int64_t i) const {
    const int64_t position = q_offset + i, shift = shared ? 0 : 7 * b;
    Range r{0, causal ? position + 1 : k_offset + sk};
    if (document > 0) {
      r.first = (position + shift) / document * document - shift;
      const int64_t end = r.first + document - padding;
      if (position >= end) return {end, end};
      if (!causal) r.end = end;
    }
    if (window > 0) r.first = std::max(r.first, position - window + 1);
    return r;
  }
  bool sees(int64_t b, int64_t i, int64_t j) const {
    const Range r = range(b, i);
    if (ranges()) return r.first <= k_offset + j && k_offset + j < r.end;
    return !causal || k_offset + j <= q_offset + i;
  }
  double score(double product) const {
    const double s = product * scale();
    return cap > 0 ? cap * std::tanh(s / cap) : s;
  }
  double slope(double score_of_it) const { return cap > 0 ? 1 - score_of_it * score_of_it / (cap * cap) : 1; }
  Shape q_shape() const { return {batch, sq, heads, width}; }
  Shape k_shape() const { return {batch, sk, groups, width}; }
  std::string text() const {
    std::string all = q_shape().text() + " by " + k_shape().text() + (causal ? " causal " : " full ") +
                      std::to_string(q_offset - k_offset);
    if (document > 0) all += " documents of " + std::to_string(document) + "-" + std::to_string(padding);
    if (window > 0) all += " window " + std::to_string(window);
    if (cap > 0) all += " cap " + std::to_string(cap);
    return all + (sinks ? " sinks" : "") + (shared ? " shared" : "");
  }
};

struct Result {
  Values out, lse;
};

// All tensors are row-major in the shapes of Case. `sinks` has one score for each head, or none.
inline Result reference(const Case& c, const Values& q, const Values& k, const Values& v,
                        const Values& sinks = {}) {
  Result r{Values(q.size(), 0), Values(static_cast<size_t>(c.batch * c.heads * c.sq), -kInfinity)};
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.sq; ++i) {
        const int64_t g = h / (c.heads / c.groups);
        const double* q_D = q.data() + ((b * c.sq + i) * c.heads + h) * c.width;
        double* out_D = r.out.data() + ((b * c.sq + i) * c.heads + h) * c.width;
        Values score(static_cast<size_t>(c.sk), -kInfinity);
        const double sink = sinks.empty() ? -kInfinity : sinks[static_cast<size_t>(h)];
        double most = sink;
        for (int64_t j = 0; j < c.sk; ++j) {
          if (!c.sees(b, i, j)) continue;
          const double* k_D = k.data() + ((b * c.sk + j) * c.groups + g) * c.width;
          double s = 0;
          for (int64_t d = 0; d < c.width; ++d) s += q_D[d] * k_D[d];
          score[static_cast<size_t>(j)] = c.score(s);
          most = std::max(most, c.score(s));
        }
        if (most == -kInfinity) continue;
        double total = std::exp(sink - most);
        for (double& s : score) total += s = std::exp(s - most);
        for (int64_t j = 0; j < c.sk; ++j)
          for (int64_t d = 0; d < c.width; ++d)
            out_D[d] += score[static_cast<size_t>(j)] / total *
                        v[static_cast<size_t>(((b * c.sk + j) * c.groups + g) * c.width + d)];
        r.lse[static_cast<size_t>((b * c.heads + h) * c.sq + i)] = most + std::log(total);
      }
  return r;
}

// q, k and v as slices of one fused projection [B, S, heads, K] where the sequences are equal, else with
// their head and sequence dims exchanged in memory: two kinds of strides.
struct Attention {
  Attention(Bench& bench, DType dtype, const Case& of, double deviation = 1) : c(of) {
    if (c.sq == c.sk) {
      const Tensor fused = bench.empty(dtype, {c.batch, c.sq, c.heads + 2 * c.groups, c.width});
      q = fused.slice(2, 0, c.heads);
      k = fused.slice(2, c.heads, c.heads + c.groups);
      v = fused.slice(2, c.heads + c.groups, c.heads + 2 * c.groups);
    } else {
      q = bench.empty(dtype, {c.batch, c.heads, c.sq, c.width}).transpose(1, 2);
      k = bench.empty(dtype, {c.batch, c.groups, c.sk, c.width}).transpose(1, 2);
      v = bench.empty(dtype, {c.batch, c.groups, c.sk, c.width}).transpose(1, 2);
    }
    assign(q, random_values(static_cast<size_t>(q.count()), 1, deviation));
    assign(k, random_values(static_cast<size_t>(k.count()), 2, deviation));
    assign(v, random_values(static_cast<size_t>(v.count()), 3));
    out = bench.empty(dtype, c.q_shape());
    lse = bench.empty(accumulator_of(dtype), {c.batch, c.heads, c.sq});
    dout = random_tensor(bench, dtype, c.q_shape(), 4);
    if (c.sinks) sinks = random_tensor(bench, dtype, {c.heads}, 5);
    if (c.ranges()) set_ranges(bench);
  }
  void set_ranges(Bench& bench) {
    const int64_t rows = c.shared ? 1 : c.batch;
    Values first, end;
    for (int64_t b = 0; b < rows; ++b)
      for (int64_t i = 0; i < c.sq; ++i) {
        first.push_back(static_cast<double>(c.range(b, i).first));
        end.push_back(static_cast<double>(c.range(b, i).end));
      }
    first_key = tensor(bench, DType::i32, {rows, c.sq}, first);
    end_key = tensor(bench, DType::i32, {rows, c.sq}, end);
  }
  AttentionArgs args() const {
    return {q, k, v, out, lse, c.scale(), c.causal, c.q_offset, c.k_offset, first_key, end_key, c.cap, sinks};
  }
  AttentionBackwardArgs backward_args(const Tensor& dq, const Tensor& dk, const Tensor& dv, bool accumulate,
                                      const Tensor& dsinks = {}) const {
    return {q,        k,          v,          out,        lse,       dout,    dq,    dk,    dv,    c.scale(),
            c.causal, c.q_offset, c.k_offset, accumulate, first_key, end_key, c.cap, sinks, dsinks};
  }

  Case c;
  Tensor q, k, v, out, lse, dout, sinks, first_key, end_key;
};

struct Gradients {
  Tensor dq, dk, dv, dsinks;
};

// Gradients of `dtype` that start as `start`. dsinks, which is always added to, starts as 0.
inline Gradients backward(Bench& bench, const Attention& a, DType dtype, bool accumulate, double start = 7) {
  const auto filled = [&](const Shape& shape) {
    return tensor(bench, dtype, shape, Values(static_cast<size_t>(shape.count()), start));
  };
  Gradients g{filled(a.c.q_shape()), filled(a.c.k_shape()), filled(a.c.k_shape()), {}};
  if (a.c.sinks)
    g.dsinks =
        tensor(bench, accumulator_of(a.q.dtype()), {a.c.heads}, Values(static_cast<size_t>(a.c.heads), 0));
  bench.ops->attention_backward(a.backward_args(g.dq, g.dk, g.dv, accumulate, g.dsinks), bench.stream());
  return g;
}

// The formulas of the gradient in f64, from the definition's probabilities.
struct ReferenceGradients {
  Values dq, dk, dv, dsinks;
};
inline ReferenceGradients reference_backward(const Attention& a) {
  const Case& c = a.c;
  const Values q = values(a.q), k = values(a.k), v = values(a.v), dout = values(a.dout);
  const Values sinks = a.sinks ? values(a.sinks) : Values{};
  const Result r = reference(c, q, k, v, sinks);
  ReferenceGradients d{Values(q.size(), 0), Values(k.size(), 0), Values(k.size(), 0),
                       Values(sinks.size(), 0)};
  const auto at = [](const Values& x, int64_t p) { return x[static_cast<size_t>(p)]; };
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.sq; ++i) {
        const int64_t g = h / (c.heads / c.groups), qi = ((b * c.sq + i) * c.heads + h) * c.width;
        const double lse = at(r.lse, (b * c.heads + h) * c.sq + i);
        double row = 0;
        for (int64_t e = 0; e < c.width; ++e) row += at(dout, qi + e) * at(r.out, qi + e);
        if (c.sinks) d.dsinks[static_cast<size_t>(h)] -= std::exp(at(sinks, h) - lse) * row;
        for (int64_t j = 0; j < c.sk; ++j) {
          if (!c.sees(b, i, j)) continue;
          const int64_t kj = ((b * c.sk + j) * c.groups + g) * c.width;
          double s = 0, dp = 0;
          for (int64_t e = 0; e < c.width; ++e) {
            s += at(q, qi + e) * at(k, kj + e);
            dp += at(dout, qi + e) * at(v, kj + e);
          }
          const double p = std::exp(c.score(s) - lse), ds = p * (dp - row) * c.slope(c.score(s)) * c.scale();
          for (int64_t e = 0; e < c.width; ++e) {
            d.dv[static_cast<size_t>(kj + e)] += p * at(dout, qi + e);
            d.dq[static_cast<size_t>(qi + e)] += ds * at(k, kj + e);
            d.dk[static_cast<size_t>(kj + e)] += ds * at(q, qi + e);
          }
        }
      }
  return d;
}

}  // namespace gangway::attention_testing
