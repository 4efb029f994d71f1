// Attention on the software GPU with key ranges, a cap and sinks, against the definition score by score.
#include <limits>
#include <numeric>

#include "gpu_emulation/cuda_ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

struct Ranges {
  std::vector<int32_t> first, end;  // of [rows, Sq]
  int64_t rows = 0;
};

// Documents of these lengths, one after another, in each of which a query sees itself and what is before it,
// up to `window` keys.
Ranges documents(const std::vector<std::vector<int64_t>>& rows, int64_t window = 1 << 30) {
  Ranges r;
  r.rows = static_cast<int64_t>(rows.size());
  for (const auto& lengths : rows) {
    int64_t begin = 0, i = 0;
    for (const int64_t length : lengths) {
      for (; i < begin + length; ++i) {
        r.first.push_back(static_cast<int32_t>(std::max(begin, i - window + 1)));
        r.end.push_back(static_cast<int32_t>(i + 1));
      }
      begin += length;
    }
  }
  return r;
}

// Of ten queries each, the first see ten keys, the next none, and so on. Query 0 sees keys from -before on.
Ranges sparse(int64_t queries, int64_t before) {
  Ranges r;
  r.rows = 1;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t first = i / 10 * 10 - before;
    r.first.push_back(static_cast<int32_t>(first));
    r.end.push_back(static_cast<int32_t>(i / 10 % 2 == 0 ? first + 10 : first));
  }
  return r;
}

struct Case {
  const char* name;
  int64_t batch, sq, sk, heads, groups, width;
  Ranges ranges = {};
  double cap = 0;
  bool sinks = false;
  bool causal = true;
  int64_t q_offset = 0, k_offset = 0;

  double scale() const { return 1.3 / std::sqrt(static_cast<double>(width)); }
  bool sees(int64_t b, int64_t i, int64_t j) const {
    if (ranges.rows == 0) return !causal || k_offset + j <= q_offset + i;
    const auto at = static_cast<size_t>((ranges.rows == 1 ? 0 : b) * sq + i);
    return ranges.first[at] <= k_offset + j && k_offset + j < ranges.end[at];
  }
};

std::vector<Case> cases() {
  return {
      {"documents of each row", 2, 100, 100, 2, 1, 8, documents({{30, 1, 69}, {64, 36}})},
      {"a window over borders of tiles", 2, 140, 140, 1, 1, 20, documents({{140}}, 7)},
      {"documents, a window, a cap and sinks", 1, 90, 90, 4, 2, 64, documents({{33, 57}}, 40), 3, true},
      {"queries that see nothing, keys from 20 on", 1, 70, 90, 2, 2, 16, sparse(70, 5), 0, true, true, 0, 20},
      {"queries that see nothing, without sinks", 1, 70, 30, 2, 2, 16, sparse(70, -3), 2},
      {"a causal call with a cap", 1, 40, 70, 1, 1, 130, {}, 1.5, false, true, 30, 0},
      {"a full call with sinks", 1, 9, 33, 3, 1, 128, {}, 0, true, false},
      {"one query, one key", 1, 1, 1, 1, 1, 1, documents({{1}}), 2, true},
      {"no keys", 2, 3, 0, 2, 1, 8, {}, 0, true},
  };
}

struct Inputs {
  Values q, k, v, sinks, dout;
};

struct Result {
  Values out, lse;
  Values dq, dk, dv, dsinks;
};

// With gradients of out * dout, from the formulas.
Result reference(const Case& c, const Inputs& in) {
  Result r;
  r.out = r.dq = Values(in.q.size(), 0);
  r.dk = r.dv = Values(in.k.size(), 0);
  r.lse = Values(static_cast<size_t>(c.batch * c.heads * c.sq), -kInfinity);
  r.dsinks = Values(static_cast<size_t>(c.heads), 0);
  const auto product = [&](const Values& a, int64_t i, const Values& b, int64_t j) {
    return std::inner_product(a.begin() + i, a.begin() + i + c.width, b.begin() + j, 0.0);
  };
  const auto add = [&](Values& to, int64_t i, double factor, const Values& from, int64_t j) {
    for (int64_t e = 0; e < c.width; ++e)
      to[static_cast<size_t>(i + e)] += factor * from[static_cast<size_t>(j + e)];
  };
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.sq; ++i) {
        const int64_t g = h / (c.heads / c.groups), qi = ((b * c.sq + i) * c.heads + h) * c.width;
        const auto kj = [&](int64_t j) { return ((b * c.sk + j) * c.groups + g) * c.width; };
        Values score(static_cast<size_t>(c.sk), -kInfinity), slope(score.size(), c.scale());
        const double sink = c.sinks ? in.sinks[static_cast<size_t>(h)] : -kInfinity;
        double most = sink;
        for (int64_t j = 0; j < c.sk; ++j) {
          if (!c.sees(b, i, j)) continue;
          double& s = score[static_cast<size_t>(j)];
          s = product(in.q, qi, in.k, kj(j)) * c.scale();
          if (c.cap > 0) {
            s = c.cap * std::tanh(s / c.cap);
            slope[static_cast<size_t>(j)] *= 1 - s / c.cap * s / c.cap;
          }
          most = std::max(most, s);
        }
        if (most == -kInfinity) continue;
        double total = c.sinks ? std::exp(sink - most) : 0;
        for (const double s : score) total += std::exp(s - most);
        const double lse = most + std::log(total);
        r.lse[static_cast<size_t>((b * c.heads + h) * c.sq + i)] = lse;
        for (int64_t j = 0; j < c.sk; ++j)
          add(r.out, qi, std::exp(score[static_cast<size_t>(j)] - lse), in.v, kj(j));
        const double along = product(r.out, qi, in.dout, qi);
        if (c.sinks) r.dsinks[static_cast<size_t>(h)] -= std::exp(sink - lse) * along;
        for (int64_t j = 0; j < c.sk; ++j) {
          const double p = std::exp(score[static_cast<size_t>(j)] - lse);
          if (p == 0) continue;
          const double ds = p * (product(in.dout, qi, in.v, kj(j)) - along) * slope[static_cast<size_t>(j)];
          add(r.dv, kj(j), p, in.dout, qi);
          add(r.dq, qi, ds, in.k, kj(j));
          add(r.dk, kj(j), ds, in.q, qi);
        }
      }
  return r;
}

struct Attention {
  Attention(Bench& bench, DType dtype, const Case& of) : c(of) {
    const DType wide = accumulator_of(dtype);
    const Shape of_q{c.batch, c.sq, c.heads, c.width}, of_k{c.batch, c.sk, c.groups, c.width};
    q = random_tensor(bench, dtype, of_q, 1, 1.5);
    k = random_tensor(bench, dtype, of_k, 2, 1.5);
    v = random_tensor(bench, dtype, of_k, 3);
    dout = random_tensor(bench, dtype, of_q, 4);
    out = bench.empty(dtype, of_q);
    lse = bench.empty(wide, {c.batch, c.heads, c.sq});
    dq = bench.empty(dtype, of_q);
    dk = bench.empty(dtype, of_k);
    dv = bench.empty(dtype, of_k);
    if (c.sinks) {
      sinks = random_tensor(bench, dtype, {c.heads}, 5);
      dsinks = tensor(bench, wide, {c.heads}, Values(static_cast<size_t>(c.heads), 2));
    }
    if (c.ranges.rows == 0) return;
    const auto ranges = [&](const std::vector<int32_t>& of_rows) {
      return tensor(bench, DType::i32, {c.ranges.rows, c.sq}, Values(of_rows.begin(), of_rows.end()));
    };
    first = ranges(c.ranges.first);
    end = ranges(c.ranges.end);
  }
  void run(Bench& bench) const {
    bench.ops->attention(
        {q, k, v, out, lse, c.scale(), c.causal, c.q_offset, c.k_offset, first, end, c.cap, sinks},
        bench.stream());
    bench.ops->attention_backward({q, k, v, out, lse, dout, dq, dk, dv, c.scale(), c.causal, c.q_offset,
                                   c.k_offset, false, first, end, c.cap, sinks, dsinks},
                                  bench.stream());
  }
  Inputs inputs() const {
    return {values(q), values(k), values(v), sinks ? values(sinks) : Values(), values(dout)};
  }

  Case c;
  Tensor q, k, v, out, lse, dout, dq, dk, dv, sinks, dsinks, first, end;
};

class AttentionScores : public OnSoftwareGpu {};

void expect_the_definition(Bench& bench, DType dtype, const Case& c) {
  const Attention a(bench, dtype, c);
  a.run(bench);
  const Result want = reference(c, a.inputs());
  const std::string what = std::string(name(dtype)) + ", " + c.name;
  expect_close(a.out, want.out, tolerance_of(dtype), "out " + what);
  expect_close(a.lse, want.lse, dtype == DType::f64 ? 1e-12 : 2e-5, "lse " + what);
  const double tolerance = dtype == DType::f64 ? 1e-11 : std::max(5e-5, 6 * rounding_of(dtype));
  expect_close(values(a.dq), want.dq, tolerance, "dq " + what, 0.2);
  expect_close(values(a.dk), want.dk, tolerance, "dk " + what, 0.2);
  expect_close(values(a.dv), want.dv, tolerance, "dv " + what, 0.2);
  if (!c.sinks) return;
  Values dsinks = want.dsinks;
  for (double& x : dsinks) x += 2;
  expect_close(values(a.dsinks), dsinks, tolerance, "dsinks " + what, 0.2);
}

TEST_F(AttentionScores, EqualTheDefinition) {
  Bench bench;
  for (const DType dtype : kFloats)
    for (const Case& c : cases()) expect_the_definition(bench, dtype, c);
}

// Of each width for which tensor cores have a kernel, with a causal mask alone and with documents, a window
// and a cap.
TEST_F(AttentionScores, EveryWidthOfTheTensorCoresEqualsTheDefinition) {
  Bench bench;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const int64_t width : {64, 128, 256}) {
      const std::string text = "width " + std::to_string(width);
      expect_the_definition(bench, dtype, {text.c_str(), 1, 35, 35, 2, 1, width});
      expect_the_definition(bench, dtype,
                            {text.c_str(), 1, 35, 35, 2, 1, width, documents({{12, 23}}, 9), 3});
    }
}

TEST_F(AttentionScores, TheFormulasOfTheGradientAreItsFiniteDifferences) {
  const Case c{"small", 1, 5, 5, 2, 1, 3, documents({{2, 3}}), 1.2, true};
  Inputs in = {random_values(30, 1), random_values(15, 2), random_values(15, 3), random_values(2, 4),
               random_values(30, 5)};
  const Result r = reference(c, in);
  const auto check = [&](Values Inputs::*member, const Values& got, const char* what) {
    const Values want = numeric_gradient(in.*member, [&](const Values& x) {
      Inputs moved = in;
      moved.*member = x;
      return dot(reference(c, moved).out, in.dout);
    });
    expect_close(got, want, 1e-8, what);
  };
  check(&Inputs::q, r.dq, "dq");
  check(&Inputs::k, r.dk, "dk");
  check(&Inputs::v, r.dv, "dv");
  check(&Inputs::sinks, r.dsinks, "dsinks");
}

// Rows of the third document are NaN, which every block of scores that touches them would spread.
TEST_F(AttentionScores, BlocksThatNoQuerySeesAreNotComputed) {
  Bench bench;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Attention a(bench, dtype, {"documents", 1, 192, 192, 1, 1, 64, documents({{64, 64, 64}})});
    for (const Tensor* t : {&a.q, &a.k, &a.v, &a.dout}) {
      Values with = values(*t);
      std::fill(with.begin() + 128 * 64, with.end(), std::numeric_limits<double>::quiet_NaN());
      assign(*t, with);
    }
    a.run(bench);
    for (const Tensor* t : {&a.out, &a.dq, &a.dk, &a.dv}) {
      const Values got = values(*t);
      EXPECT_TRUE(
          std::all_of(got.begin(), got.begin() + 128 * 64, [](double x) { return std::isfinite(x); }));
      EXPECT_TRUE(std::isnan(got[128 * 64]));
    }
  }
}

TEST_F(AttentionScores, AChangeInOneDocumentLeavesTheBitsOfAnotherAlone) {
  Bench bench;
  const int64_t cut = 37, rows = 80;
  for (const DType dtype : {DType::f64, DType::f16}) {
    const Attention a(bench, dtype, {"documents", 1, rows, rows, 1, 1, 16, documents({{cut, rows - cut}})});
    std::vector<Values> before;
    for (const bool changed : {false, true}) {
      if (changed)
        for (const Tensor* t : {&a.q, &a.k, &a.v, &a.dout})
          assign(t->slice(1, 0, cut), random_values(static_cast<size_t>(cut * 16), 99, 3));
      a.run(bench);
      std::vector<Values> now;
      for (const Tensor* t : {&a.out, &a.dq, &a.dk, &a.dv}) now.push_back(values(t->slice(1, cut, rows)));
      if (changed) {
        EXPECT_EQ(now, before) << name(dtype);
      }
      before = now;
    }
  }
}

}  // namespace
}  // namespace gangway
