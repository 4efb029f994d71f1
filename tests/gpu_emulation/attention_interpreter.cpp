#include "gpu_emulation/attention_interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace gangway;
using namespace gangway::cuda;

namespace gpu_emulation {
namespace {

using Place = std::array<int64_t, 4>;  // indices b, h, s, d

class Values {
 public:
  Values(const AttentionGraph& graph, const AttentionPointers& pointers, Operand operand)
      : layout_(graph[operand]), data_(pointers[static_cast<size_t>(operand)]) {}
  double operator[](const Place& place) const {
    const int64_t i = at(place);
    switch (layout_.dtype) {
      case DType::bf16: return to_f32(static_cast<const bf16_t*>(data_)[i]);
      case DType::f16: return to_f32(static_cast<const f16_t*>(data_)[i]);
      default: return static_cast<const float*>(data_)[i];
    }
  }
  void set(const Place& place, double value) const {
    const int64_t i = at(place);
    const float narrow = static_cast<float>(value);
    switch (layout_.dtype) {
      case DType::bf16: static_cast<bf16_t*>(data_)[i] = to_bf16(narrow); break;
      case DType::f16: static_cast<f16_t*>(data_)[i] = to_f16(narrow); break;
      default: static_cast<float*>(data_)[i] = narrow;
    }
  }
  bool present() const { return layout_.present; }
  int64_t dim(size_t d) const { return layout_.dims[d]; }

 private:
  int64_t at(const Place& place) const {
    int64_t sum = 0;
    for (size_t d = 0; d < 4; ++d) sum += place[d] * layout_.strides[d];
    return sum;
  }
  const OperandLayout& layout_;
  void* const data_;
};

struct Row {
  int64_t b, h, i, g;
};

// Calls body(row) for each query of each head, in order.
template <typename Body>
void for_rows(const Values& q, const Values& k, Body&& body) {
  for (int64_t b = 0; b < q.dim(0); ++b)
    for (int64_t h = 0; h < q.dim(1); ++h)
      for (int64_t i = 0; i < q.dim(2); ++i) body(Row{b, h, i, h / (q.dim(1) / k.dim(1))});
}

double dot(const Values& x, const Place& at_x, const Values& y, const Place& at_y) {
  double sum = 0;
  for (int64_t d = 0; d < x.dim(3); ++d)
    sum += x[{at_x[0], at_x[1], at_x[2], d}] * y[{at_y[0], at_y[1], at_y[2], d}];
  return sum;
}

void interpret_forward(const AttentionGraph& graph, const AttentionPointers& pointers) {
  const Values q(graph, pointers, Operand::q), k(graph, pointers, Operand::k), v(graph, pointers, Operand::v),
      out(graph, pointers, Operand::out), lse(graph, pointers, Operand::lse);
  for_rows(q, k, [&](const Row& r) {
    const int64_t end = graph.causal ? std::min(r.i + 1, k.dim(2)) : k.dim(2);
    std::vector<double> weight(static_cast<size_t>(end)), sum(static_cast<size_t>(v.dim(3)));
    double most = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t j = 0; j < end; ++j) {
      double& score = weight[static_cast<size_t>(j)];
      score = static_cast<double>(graph.scale) * dot(q, {r.b, r.h, r.i, 0}, k, {r.b, r.g, j, 0});
      most = std::max(most, score);
    }
    for (double& w : weight) total += w = std::exp(w - most);
    for (int64_t j = 0; j < end; ++j)
      for (int64_t d = 0; d < v.dim(3); ++d)
        sum[static_cast<size_t>(d)] += weight[static_cast<size_t>(j)] / total * v[{r.b, r.g, j, d}];
    for (int64_t d = 0; d < v.dim(3); ++d) out.set({r.b, r.h, r.i, d}, sum[static_cast<size_t>(d)]);
    if (lse.present()) lse.set({r.b, r.h, r.i, 0}, most + std::log(total));
  });
}

void interpret_backward(const AttentionGraph& graph, const AttentionPointers& pointers) {
  const Values q(graph, pointers, Operand::q), k(graph, pointers, Operand::k), v(graph, pointers, Operand::v),
      out(graph, pointers, Operand::out), lse(graph, pointers, Operand::lse),
      dout(graph, pointers, Operand::dout);
  // The sums of all rows are in f64 and are rounded once, at the end.
  const auto sums = [](const Values& like) {
    return std::vector<double>(static_cast<size_t>(like.dim(0) * like.dim(1) * like.dim(2) * like.dim(3)));
  };
  std::vector<double> dq = sums(q), dk = sums(k), dv = sums(v);
  const auto at = [](std::vector<double>& values, const Values& like, int64_t b, int64_t h, int64_t s) {
    return values.data() + ((b * like.dim(1) + h) * like.dim(2) + s) * like.dim(3);
  };
  const double scale = static_cast<double>(graph.scale);
  for_rows(q, k, [&](const Row& r) {
    const int64_t end = graph.causal ? std::min(r.i + 1, k.dim(2)) : k.dim(2);
    const double along = dot(dout, {r.b, r.h, r.i, 0}, out, {r.b, r.h, r.i, 0}),
                 row_lse = lse[{r.b, r.h, r.i, 0}];
    double* const dq_row = at(dq, q, r.b, r.h, r.i);
    for (int64_t j = 0; j < end; ++j) {
      const double weight = std::exp(scale * dot(q, {r.b, r.h, r.i, 0}, k, {r.b, r.g, j, 0}) - row_lse);
      const double dscore = weight * (dot(dout, {r.b, r.h, r.i, 0}, v, {r.b, r.g, j, 0}) - along) * scale;
      double *const dk_row = at(dk, k, r.b, r.g, j), *const dv_row = at(dv, v, r.b, r.g, j);
      for (int64_t d = 0; d < q.dim(3); ++d) {
        dq_row[d] += dscore * k[{r.b, r.g, j, d}];
        dk_row[d] += dscore * q[{r.b, r.h, r.i, d}];
        dv_row[d] += weight * dout[{r.b, r.h, r.i, d}];
      }
    }
  });
  const auto store = [&](Operand operand, const std::vector<double>& values) {
    const Values to(graph, pointers, operand);
    size_t i = 0;
    for (int64_t b = 0; b < to.dim(0); ++b)
      for (int64_t h = 0; h < to.dim(1); ++h)
        for (int64_t s = 0; s < to.dim(2); ++s)
          for (int64_t d = 0; d < to.dim(3); ++d) to.set({b, h, s, d}, values[i++]);
  };
  store(Operand::dq, dq);
  store(Operand::dk, dk);
  store(Operand::dv, dv);
}

}  // namespace

void interpret(const AttentionGraph& graph, const AttentionPointers& pointers) {
  graph.backward ? interpret_backward(graph, pointers) : interpret_forward(graph, pointers);
}

int64_t extent(const OperandLayout& layout) {
  int64_t last = 0;
  for (size_t d = 0; d < 4; ++d) last += (layout.dims[d] - 1) * layout.strides[d];
  return last + 1;
}

}  // namespace gpu_emulation
