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
  int64_t window = 0;
  double cap = 0;
  bool sinks = false;
  // The lengths of the documents of row b begin at entry b and go round; empty: each row is one document.
  std::vector<int64_t> lengths = {};

  double scale() const { return 0.8 / std::sqrt(static_cast<double>(width)); }
  Shape q_shape() const { return {batch, tokens, heads, width}; }
  Shape k_shape() const { return {batch, tokens, kv_heads, width}; }
  AttentionCoreOptions options() const { return {heads, kv_heads, scale(), causal, window, cap, sinks}; }
  std::string text() const {
    return gangway::text(q_shape().text(), " by ", kv_heads, causal ? " causal" : " full", ", window ",
                         window, ", cap ", cap, sinks ? ", sinks" : "", ", ", lengths.size(), " lengths");
  }
  // The document of each token of each row.
  std::vector<int64_t> document_ids() const {
    std::vector<int64_t> ids;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t document = 0, t = 0; t < tokens; ++document)
        for (int64_t n = lengths[static_cast<size_t>(b + document) % lengths.size()]; n > 0 && t < tokens;
             --n, ++t)
          ids.push_back(document);
    return ids;
  }
};

// Row-major, in the shapes of the problem.
struct Dense {
  Vector q, k, v, dout, sinks;
  Vector out, dq, dk, dv, dsinks;
  std::vector<int64_t> document_ids;

  explicit Dense(const Problem& p)
      : q(random_vector(static_cast<size_t>(p.q_shape().count()), 1)),
        k(random_vector(static_cast<size_t>(p.k_shape().count()), 2)),
        v(random_vector(static_cast<size_t>(p.k_shape().count()), 3)),
        dout(random_vector(q.size(), 4)),
        sinks(random_vector(static_cast<size_t>(p.heads), 5)),
        out(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()),
        dsinks(sinks.size()) {
    if (!p.lengths.empty()) document_ids = p.document_ids();
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t i = 0; i < p.tokens; ++i) row(p, b, h, i);
  }

 private:
  void row(const Problem& p, int64_t b, int64_t h, int64_t i) {
    const auto width = static_cast<size_t>(p.width);
    const auto qi = static_cast<size_t>(((b * p.tokens + i) * p.heads + h) * p.width);
    const int64_t g = h / (p.heads / p.kv_heads);
    const auto document = [&](int64_t t) {
      return document_ids.empty() ? 0 : document_ids[static_cast<size_t>(b * p.tokens + t)];
    };
    const auto sees = [&](int64_t j) {
      return document(i) == document(j) && (!p.causal || j <= i) && (p.window == 0 || i - j < p.window);
    };
    std::vector<int64_t> seen;
    for (int64_t j = 0; j < p.tokens; ++j)
      if (sees(j)) seen.push_back(j);
    const auto kj = [&](int64_t j) {
      return static_cast<size_t>(((b * p.tokens + j) * p.kv_heads + g) * p.width);
    };
    const double sink = p.sinks ? sinks[static_cast<size_t>(h)] : -INFINITY;
    Vector weight(seen.size()), slope(seen.size(), 1);  // slope: of a capped score
    double most = sink, total = 0, delta = 0;
    for (size_t n = 0; n < seen.size(); ++n) {
      double score = 0;
      for (size_t d = 0; d < width; ++d) score += p.scale() * q[qi + d] * k[kj(seen[n]) + d];
      if (p.cap > 0) {
        const double share = std::tanh(score / p.cap);
        score = p.cap * share;
        slope[n] = 1 - share * share;
      }
      weight[n] = score;
      most = std::max(most, score);
    }
    for (double& w : weight) total += w = std::exp(w - most);
    const double of_sink = std::exp(sink - most);
    total += of_sink;
    for (double& w : weight) w /= total;
    for (size_t n = 0; n < seen.size(); ++n)
      for (size_t d = 0; d < width; ++d) out[qi + d] += weight[n] * v[kj(seen[n]) + d];
    for (size_t d = 0; d < width; ++d) delta += dout[qi + d] * out[qi + d];
    dsinks[static_cast<size_t>(h)] -= of_sink / total * delta;
    for (size_t n = 0; n < seen.size(); ++n) {
      const size_t j = kj(seen[n]);
      const double w = weight[n];
      double dw = 0;
      for (size_t d = 0; d < width; ++d) dw += dout[qi + d] * v[j + d];
      const double of_score = w * (dw - delta) * slope[n] * p.scale();
      for (size_t d = 0; d < width; ++d) {
        dv[j + d] += w * dout[qi + d];
        dq[qi + d] += of_score * k[j + d];
        dk[j + d] += of_score * q[qi + d];
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

// Gives the sinks their values and room for their gradient.
inline void give_sinks(AttentionCore& core, const Dense& dense, DType dtype, Gang& gang) {
  Parameter& sinks = *core.parameters()[0];
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  sinks.value = make(gang.device(), wide, sinks.shape, dense.sinks);
  sinks.grad = make_accumulator(Tensor::allocate(gang.device().allocator(), wide, sinks.shape));
}

// The documents of a problem, of which this rank has its part.
inline Documents documents_of(const Problem& p, const Dense& dense, SequencePart part) {
  if (p.lengths.empty() || p.batch == 0) return Documents(part);
  const auto host = make_device("cpu");
  std::vector<int64_t> ids = dense.document_ids;
  return Documents({Tensor::borrow(*host, ids.data(), DType::i64, Shape{p.batch, p.tokens}), {}}, part);
}

// Runs forward and backward of one rank's part of a problem. Returns out, dq, dk and dv, and this rank's part
// of the gradient of the sinks, if there are some.
inline Values run_core(AttentionCore& core, const Problem& p, const Dense& dense, DType dtype, Gang& gang,
                       CoreRig& rig) {
  const int rank = gang.rank(), ranks = gang.size();
  const auto local = [&](const Vector& whole, const Shape& shape) {
    return make(gang.device(), dtype, local_shape(shape, ranks), local_of(whole, shape, rank, ranks));
  };
  const Tensor qkv[] = {local(dense.q, p.q_shape()), local(dense.k, p.k_shape()),
                        local(dense.v, p.k_shape())};
  if (p.sinks) give_sinks(core, dense, dtype, gang);
  const Documents documents = documents_of(p, dense, {rank, ranks});
  rig.ctx.documents = &documents;
  Values all = core.forward(rig.ctx, qkv, &rig.frame);
  const Tensor dout = local(dense.dout, p.q_shape());
  const Values gradients = core.backward(rig.ctx, {&dout, 1}, rig.frame);
  all.insert(all.end(), gradients.begin(), gradients.end());
  if (p.sinks) all.push_back(core.parameters()[0]->grad->tensor);
  rig.ctx.documents = nullptr;
  return all;
}

constexpr ContextMethod kMethods[] = {ContextMethod::ring, ContextMethod::all_gather,
                                      ContextMethod::all_to_all};

}  // namespace gangway::test
