// Attention in the plainest form (plain_ops.h): score by score, with key ranges, caps and sinks.
#pragma once

#include <cmath>
#include <limits>

#include "nn/plain_values.h"
#include "ops/ops.h"

namespace gangway::nn_testing::plain_attention {

struct Heads {
  size_t batch, queries, keys, heads, kv_heads, width;
  size_t q_at(size_t b, size_t i, size_t h) const { return ((b * queries + i) * heads + h) * width; }
  size_t k_at(size_t b, size_t j, size_t h) const {
    return ((b * keys + j) * kv_heads + h / (heads / kv_heads)) * width;
  }
};

template <typename Body>
void each_query(const AttentionArgs& a, const Body& body) {
  const Heads n{size(a.q, 0), size(a.q, 1), size(a.k, 1), size(a.q, 2), size(a.k, 2), size(a.q, 3)};
  for (size_t b = 0; b < n.batch; ++b)
    for (size_t i = 0; i < n.queries; ++i)
      for (size_t h = 0; h < n.heads; ++h) body(b, i, h, n);
}

// Which keys a query sees.
struct Ranges {
  explicit Ranges(const AttentionArgs& args)
      : a(args),
        first(args.first_key ? get(args.first_key) : Vector()),
        end(args.end_key ? get(args.end_key) : Vector()) {}
  bool see(size_t b, size_t i, size_t j) const {
    const int64_t key = a.k_offset + static_cast<int64_t>(j);
    if (!a.first_key) return !a.causal || key <= a.q_offset + static_cast<int64_t>(i);
    const size_t at = (a.first_key.dim(0) == 1 ? 0 : b * size(a.q, 1)) + i;
    return first[at] <= static_cast<double>(key) && static_cast<double>(key) < end[at];
  }
  const AttentionArgs& a;
  Vector first, end;
};

// The scores of one query; -infinity for keys that it does not see.
inline Vector scores(const AttentionArgs& a, const Ranges& ranges, const Vector& q, const Vector& k, size_t b,
                     size_t i, size_t h, const Heads& n) {
  Vector s(n.keys);
  for (size_t j = 0; j < s.size(); ++j) {
    for (size_t c = 0; c < n.width; ++c) s[j] += a.scale * q[n.q_at(b, i, h) + c] * k[n.k_at(b, j, h) + c];
    if (a.cap > 0) s[j] = a.cap * std::tanh(s[j] / a.cap);
    if (!ranges.see(b, i, j)) s[j] = -std::numeric_limits<double>::infinity();
  }
  return s;
}

inline void forward(const AttentionArgs& a) {
  const Vector q = get(a.q), k = get(a.k), v = get(a.v), sinks = a.sinks ? get(a.sinks) : Vector();
  const Ranges ranges(a);
  Vector out(q.size()), lse(size(a.q, 0) * size(a.q, 1) * size(a.q, 2));
  each_query(a, [&](size_t b, size_t i, size_t h, const Heads& n) {
    Vector p = scores(a, ranges, q, k, b, i, h, n);
    double sum = a.sinks ? std::exp(sinks[h]) : 0;
    for (double& s : p) sum += s = std::exp(s);
    for (size_t j = 0; sum > 0 && j < p.size(); ++j)
      for (size_t c = 0; c < n.width; ++c) out[n.q_at(b, i, h) + c] += p[j] / sum * v[n.k_at(b, j, h) + c];
    lse[(b * n.heads + h) * n.queries + i] = std::log(sum);
  });
  put(a.out, out);
  if (a.lse) put(a.lse, lse);
}

inline void backward(const AttentionBackwardArgs& a) {
  const AttentionArgs f{a.q,        a.k,        a.v,         a.out,     a.lse, a.scale, a.causal,
                        a.q_offset, a.k_offset, a.first_key, a.end_key, a.cap, a.sinks};
  const Vector q = get(a.q), k = get(a.k), v = get(a.v), out = get(a.out), lse = get(a.lse),
               dout = get(a.dout);
  const Ranges ranges(f);
  const auto start = [&](const Tensor& t) {
    return a.accumulate ? get(t) : Vector(static_cast<size_t>(t.count()));
  };
  Vector dq = start(a.dq), dk = start(a.dk), dv = start(a.dv);
  const Vector sinks = a.dsinks ? get(a.sinks) : Vector();
  Vector dsinks = a.dsinks ? get(a.dsinks) : Vector();
  each_query(f, [&](size_t b, size_t i, size_t h, const Heads& n) {
    const Vector s = scores(f, ranges, q, k, b, i, h, n);
    const size_t at = n.q_at(b, i, h);
    const double total = lse[(b * n.heads + h) * n.queries + i];
    double delta = 0;
    for (size_t c = 0; c < n.width; ++c) delta += dout[at + c] * out[at + c];
    if (a.dsinks) dsinks[h] -= std::exp(sinks[h] - total) * delta;
    for (size_t j = 0; j < s.size(); ++j) {
      if (std::isinf(s[j])) continue;  // not seen
      const size_t other = n.k_at(b, j, h);
      const double p = std::exp(s[j] - total);
      const double slope = f.cap > 0 ? 1 - s[j] * s[j] / (f.cap * f.cap) : 1;
      double dp = 0;
      for (size_t c = 0; c < n.width; ++c) dp += dout[at + c] * v[other + c];
      for (size_t c = 0; c < n.width; ++c) {
        dv[other + c] += p * dout[at + c];
        dq[at + c] += p * (dp - delta) * slope * f.scale * k[other + c];
        dk[other + c] += p * (dp - delta) * slope * f.scale * q[at + c];
      }
    }
  });
  put(a.dq, dq);
  put(a.dk, dk);
  put(a.dv, dv);
  if (a.dsinks) put(a.dsinks, dsinks);
}

}  // namespace gangway::nn_testing::plain_attention
