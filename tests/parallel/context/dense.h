// Attention over the whole sequence in f64, and its gradients, computed score by score from the definition.
// Also the tokens that each rank has.
#pragma once

#include "parallel/context/attention.h"
#include "parallel/context/watched_ops.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {

struct Problem {
  int64_t batch = 1, tokens = 2, heads = 1, kv_heads = 1, width = 1;
  bool causal = true;

  double scale() const { return 0.8 / std::sqrt(static_cast<double>(width)); }
  Shape q_shape() const { return {batch, tokens, heads, width}; }
  Shape k_shape() const { return {batch, tokens, kv_heads, width}; }
  AttentionCoreOptions options() const { return {heads, kv_heads, scale(), causal}; }
  std::string text() const {
    return q_shape().text() + " by " + std::to_string(kv_heads) + (causal ? " causal" : " full");
  }
};

// Row-major, in the shapes of the problem.
struct Dense {
  Vector q, k, v, dout;
  Vector out, dq, dk, dv;

  explicit Dense(const Problem& p)
      : q(random_vector(static_cast<size_t>(p.q_shape().count()), 1)),
        k(random_vector(static_cast<size_t>(p.k_shape().count()), 2)),
        v(random_vector(static_cast<size_t>(p.k_shape().count()), 3)),
        dout(random_vector(q.size(), 4)),
        out(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()) {
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t i = 0; i < p.tokens; ++i) row(p, b, h, i);
  }

 private:
  void row(const Problem& p, int64_t b, int64_t h, int64_t i) {
    const auto width = static_cast<size_t>(p.width);
    const auto qi = static_cast<size_t>(((b * p.tokens + i) * p.heads + h) * p.width);
    const int64_t g = h / (p.heads / p.kv_heads), seen = p.causal ? i + 1 : p.tokens;
    const auto kj = [&](int64_t j) {
      return static_cast<size_t>(((b * p.tokens + j) * p.kv_heads + g) * p.width);
    };
    Vector weight(static_cast<size_t>(seen));
    double most = -INFINITY, total = 0, delta = 0;
    for (int64_t j = 0; j < seen; ++j) {
      for (size_t d = 0; d < width; ++d)
        weight[static_cast<size_t>(j)] += p.scale() * q[qi + d] * k[kj(j) + d];
      most = std::max(most, weight[static_cast<size_t>(j)]);
    }
    for (double& w : weight) total += w = std::exp(w - most);
    for (double& w : weight) w /= total;
    for (int64_t j = 0; j < seen; ++j)
      for (size_t d = 0; d < width; ++d) out[qi + d] += weight[static_cast<size_t>(j)] * v[kj(j) + d];
    for (size_t d = 0; d < width; ++d) delta += dout[qi + d] * out[qi + d];
    for (int64_t j = 0; j < seen; ++j) {
      const double w = weight[static_cast<size_t>(j)];
      double dw = 0;
      for (size_t d = 0; d < width; ++d) dw += dout[qi + d] * v[kj(j) + d];
      for (size_t d = 0; d < width; ++d) {
        dv[kj(j) + d] += w * dout[qi + d];
        dq[qi + d] += w * (dw - delta) * p.scale() * k[kj(j) + d];
        dk[kj(j) + d] += w * (dw - delta) * p.scale() * q[qi + d];
      }
    }
  }
};

// The tokens of a rank, in order. Rank 1 of 3 with 12 tokens has chunks 1 and 4 of six: tokens 2, 3, 8 and 9.
inline std::vector<int64_t> tokens_of(int64_t tokens, int rank, int ranks) {
  std::vector<int64_t> mine;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t chunk = t / (tokens / (2 * ranks));
    if (chunk == rank || chunk == 2 * ranks - 1 - rank) mine.push_back(t);
  }
  return mine;
}

// The tokens of a rank from a row-major tensor [B, S, N, K].
inline Vector local_of(const Vector& whole, const Shape& shape, int rank, int ranks) {
  Vector local;
  const int64_t inner = shape[2] * shape[3];
  for (int64_t b = 0; b < shape[0]; ++b)
    for (const int64_t t : tokens_of(shape[1], rank, ranks)) {
      const auto first = whole.begin() + (b * shape[1] + t) * inner;
      local.insert(local.end(), first, first + inner);
    }
  return local;
}
inline Shape local_shape(const Shape& shape, int ranks) {
  return {shape[0], shape[1] / ranks, shape[2], shape[3]};
}

// The objects that an attention core needs to run.
struct CoreRig {
  explicit CoreRig(
      Gang& gang, WatchedOps::Watcher watcher = [](int64_t) {})
      : ops(make_ops(gang.owner()->device_ptr())),
        watched(*ops, std::move(watcher)),
        temporaries(gang.device().allocator()),
        frame(gang.device().allocator()),
        ctx{.ops = watched, .stream = gang.device().stream(), .temporaries = temporaries} {}
  std::unique_ptr<Ops> ops;
  WatchedOps watched;
  Stack temporaries;
  Frame frame;
  Context ctx;
};

inline std::shared_ptr<ContextAttention> core_of(const Problem& p, Gang& gang, ContextMethod method) {
  return make_context_attention(method, p.options(), gang.shared_from_this());
}

// Runs forward and backward of one rank's part of a problem. Returns out, dq, dk and dv.
inline Values run_core(AttentionCore& core, const Problem& p, const Dense& dense, DType dtype, Gang& gang,
                       CoreRig& rig) {
  const int rank = gang.rank(), ranks = gang.size();
  const auto local = [&](const Vector& whole, const Shape& shape) {
    return make(gang.device(), dtype, local_shape(shape, ranks), local_of(whole, shape, rank, ranks));
  };
  const Tensor qkv[] = {local(dense.q, p.q_shape()), local(dense.k, p.k_shape()),
                        local(dense.v, p.k_shape())};
  Values all = core.forward(rig.ctx, qkv, &rig.frame);
  const Tensor dout = local(dense.dout, p.q_shape());
  const Values gradients = core.backward(rig.ctx, {&dout, 1}, rig.frame);
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

constexpr ContextMethod kMethods[] = {ContextMethod::ring, ContextMethod::all_gather,
                                      ContextMethod::all_to_all};

}  // namespace gangway::test
