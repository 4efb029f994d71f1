// Every kernel of the module in small sizes: each instance of its templates, with several blocks, and several
// warps in each, beside the CPU's operations. From PTX these are all kernels that nvcc has made, which
// tests/cuda_build.sh demands; of kernels that tell of their accesses, all are searched for races.
#include "gpu_emulation/beside_cpu.h"
#include "ops/codes.h"

namespace gangway {
namespace {

using namespace ops_testing;

// Different numbers, none of them near zero.
std::vector<double> positive(int64_t count) {
  std::vector<double> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(0.5 + 0.01 * static_cast<double>(i * 37 % 101));
  return all;
}

class EveryKernel : public BesideCpu {};

// Packs of every dtype fill more than a warp, and single elements more than one.
constexpr int64_t kRows = 3, kWidth = 264;
const Shape kAll{kRows, kWidth};

TEST_F(EveryKernel, OfNormsGivesWhatTheCpuGives) {
  expect_the_same("rmsnorm", Reference::of_the_same_types, [](Call& c) {
    c.ops().rmsnorm({.x = c.random(kAll),
                     .residual = c.random(kAll),
                     .weight = c.random({kWidth}),
                     .y = c.result("y", kAll),
                     .sum = c.result("sum", kAll),
                     .rstd = c.result_wide("rstd", {kRows}),
                     .offset = 1},
                    c.stream());
  });
  expect_the_same("layernorm", Reference::of_the_same_types, [](Call& c) {
    c.ops().layernorm({.x = c.random(kAll),
                       .residual = c.random(kAll),
                       .weight = c.random({kWidth}),
                       .bias = c.random({kWidth}),
                       .y = c.result("y", kAll),
                       .sum = c.result("sum", kAll),
                       .mean = c.result_wide("mean", {kRows}),
                       .rstd = c.result_wide("rstd", {kRows})},
                      c.stream());
  });
  expect_the_same("row_dot", Reference::in_f64, [](Call& c) {
    c.ops().row_dot({.x = c.random(kAll),
                     .y = c.random(kAll),
                     .weight = c.random({kWidth}),
                     .out = c.result_wide("out", {kRows}),
                     .offset = 1},
                    c.stream());
  });
}

void norm_backwards(Call& c, int64_t rows, int64_t width) {
  const Shape all{rows, width};
  c.ops().rmsnorm_backward({.dy = c.random(all),
                            .x = c.random(all),
                            .weight = c.random({width}),
                            .rstd = c.random_wide({rows}),
                            .dsum = c.random(all),
                            .dx = c.result("dx", all),
                            .dweight = c.result_wide("dweight", {width}),
                            .y = c.result("y", all)},
                           c.stream());
  c.ops().layernorm_backward({.dy = c.random(all),
                              .x = c.random(all),
                              .weight = c.random({width}),
                              .bias = c.random({width}),
                              .mean = c.random_wide({rows}),
                              .rstd = c.random_wide({rows}),
                              .dsum = c.random(all),
                              .dx = c.result("dx of layernorm", all),
                              .dweight = c.result_wide("dweight of layernorm", {width}),
                              .dbias = c.result_wide("dbias", {width}),
                              .y = c.result("y of layernorm", all)},
                             c.stream());
}
TEST_F(EveryKernel, OfNormsBackwardsGivesWhatTheCpuGives) {
  expect_the_same("a row for each block", Reference::in_f64,
                  [](Call& c) { norm_backwards(c, kRows, kWidth); });
  // Blocks with a second row use their shared memory again.
  expect_the_same("257 rows", DType::f32, Reference::in_f64, [](Call& c) { norm_backwards(c, 257, 136); });
}

TEST_F(EveryKernel, OfActivationsGivesWhatTheCpuGives) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh})
    expect_the_same("activations", Reference::in_f64, [&](Call& c) {
      c.ops().activation({c.random(kAll), c.result("y", kAll), activation}, c.stream());
      c.ops().activation_backward(
          {c.random(kAll), c.random(kAll), c.result("dx", kAll), c.result("y again", kAll), activation},
          c.stream());
      c.ops().swiglu({c.random(kAll), c.random(kAll), c.result("gated", kAll), activation}, c.stream());
      c.ops().swiglu_backward({c.random(kAll), c.random(kAll), c.random(kAll), c.result("dgate", kAll),
                               c.result("dup", kAll), c.result("gated again", kAll), activation},
                              c.stream());
    });
}

TEST_F(EveryKernel, OfRotationsAndDropoutGivesWhatTheCpuGives) {
  const int64_t T = 6, heads = 3, width = 48, half = 16;
  expect_the_same("rope", Reference::in_f64, [&](Call& c) {
    c.ops().rope({.x = c.random({T, heads * width}),
                  .y = c.result("y", {T, heads * width}),
                  .cos = c.random_wide({T / 2, half}),
                  .sin = c.random_wide({T / 2, half}),
                  .positions = {},
                  .heads = heads,
                  .sequence = T / 2},
                 c.stream());
  });
  expect_the_same("dropout", Reference::in_f64, [](Call& c) {
    c.ops().dropout({.x = c.random(kAll),
                     .y = c.result("y", kAll),
                     .rows = c.ids({7, 2, 40}),
                     .key = 77,
                     .probability = 0.3,
                     .first_column = 13,
                     .columns = 500},
                    c.stream());
  });
}

// Keys and queries of more than one tile. `general`: two documents with a window, a cap and sinks.
void attend(Call& c, int64_t width, bool general) {
  const int64_t B = 1, S = width > 128 ? 35 : 70, H = 2, G = 1, cut = S / 2 - 6, window = S / 2 + 5;
  const double near = c.wide == DType::f64 ? 1e-11 : 6 * rounding_of(c.type) + 5e-5;
  const Tensor q = c.random({B, S, H, width}), k = c.random({B, S, G, width}), v = c.random({B, S, G, width}),
               dout = c.random({B, S, H, width}), out = c.result("out", {B, S, H, width}),
               lse = c.result_wide("lse", {B, H, S}), dq = c.result("dq", {B, S, H, width}, near),
               dk = c.result("dk", {B, S, G, width}, near), dv = c.result("dv", {B, S, G, width}, near);
  AttentionArgs forward{q, k, v, out, lse, 1.3 / std::sqrt(static_cast<double>(width))};
  AttentionBackwardArgs backward{q, k, v, out, lse, dout, dq, dk, dv, forward.scale};
  if (general) {
    std::vector<double> first, end;
    for (int64_t i = 0; i < S; ++i) {
      first.push_back(static_cast<double>(std::max(i < cut ? 0 : cut, i - window + 1)));
      end.push_back(static_cast<double>(i + 1));
    }
    forward.first_key = backward.first_key = c.of(DType::i32, {1, S}, first);
    forward.end_key = backward.end_key = c.of(DType::i32, {1, S}, end);
    forward.cap = backward.cap = 3;
    forward.sinks = backward.sinks = c.random({H});
    backward.dsinks = c.result_wide("dsinks", {H}, near);
  }
  c.ops().attention(forward, c.stream());
  c.ops().attention_backward(backward, c.stream());
}
// Kernels are made for heads up to 64, 128 and 256 wide, and each reads packs where it can.
TEST_F(EveryKernel, OfAttentionGivesWhatTheCpuGives) {
  for (const DType dtype : kFloats)
    for (const int64_t width : {24, 72, 136})
      for (const bool general : {false, true})
        expect_the_same(text("attention, width ", width, general ? ", general" : ""), dtype,
                        Reference::in_f64, [&](Call& c) { attend(c, width, general); }, {general});
}
TEST_F(EveryKernel, ThatMergesAttentionGivesWhatTheCpuGives) {
  const Shape rows{2, 5, 3, 40}, sums{2, 3, 5};
  expect_the_same("attention_merge", Reference::in_f64, [&](Call& c) {
    c.ops().attention_merge({.out = c.result_wide("out", rows),
                             .lse = c.result_wide("lse", sums),
                             .part = c.random(rows),
                             .part_lse = c.random_wide(sums)},
                            c.stream());
  });
}

TEST_F(EveryKernel, OfEmbeddingsGivesWhatTheCpuGives) {
  const std::vector<int64_t> ids = {4, 1, 9, 4, 0, 4, 12};
  expect_the_same("embedding", Reference::in_f64, [&](Call& c) {
    const auto T = static_cast<int64_t>(ids.size());
    c.ops().embedding({.table = c.random({6, kWidth}),
                       .ids = c.ids(ids),
                       .y = c.result("y", {T, kWidth}),
                       .first_row = 1,
                       .rows = 20},
                      c.stream());
    c.ops().embedding_backward({.ids = c.ids(ids),
                                .dy = c.random({T, kWidth}),
                                .dtable = c.result_wide("dtable", {6, kWidth}),
                                .first_row = 1},
                               c.stream());
  });
}

LossTerms some_terms(Call& c, int64_t tokens, bool with_terms) {
  LossTerms terms;
  terms.weights = c.random_wide({tokens});
  terms.log_probs = c.result_wide("log_probs", {tokens});
  if (with_terms) terms.cap = 3, terms.label_smoothing = 0.1, terms.z_loss = 0.03;
  return terms;
}

// Rows of logits have more than one tile of 512 packs or elements. Those of another length hold no packs.
TEST_F(EveryKernel, OfTheHeadsLossGivesWhatTheCpuGives) {
  const int64_t T = 4, D = 8;
  for (const bool backward : {true, false})
    for (const bool with_terms : {true, false})
      expect_the_same(text("head_loss", backward ? ", backward" : "", with_terms ? ", terms" : ""),
                      Reference::in_f64, [&](Call& c) {
                        const int64_t V = c.packs ? 2056 : 521;
                        const double near = c.type == DType::f64   ? 1e-9
                                            : c.type == DType::f32 ? 2e-5
                                                                   : 4 * rounding_of(c.type);
                        HeadLossArgs args{.x = c.random({T, D}),
                                          .w = c.random({V, D}, 0.3),
                                          .labels = c.ids({V - 1, -100, 0, 9}),
                                          .loss = c.result(DType::f64, "loss", {1}),
                                          .weight = c.result(DType::f64, "weight", {1}),
                                          .dx = {},
                                          .dw = {},
                                          .scale = 0.25,
                                          .terms = some_terms(c, T, with_terms)};
                        if (backward) args.dx = c.result("dx", {T, D}, near);
                        if (backward) args.dw = c.result_wide("dw", {V, D}, near);
                        c.ops().head_loss(args, c.bench.temporaries, c.stream());
                      });
}
TEST_F(EveryKernel, OfALossInPartsGivesWhatTheCpuGives) {
  const int64_t C = 4;
  for (const DType dtype : {DType::f64, DType::f32})
    for (const bool with_terms : {true, false})
      expect_the_same(with_terms ? "loss_part, terms" : "loss_part", dtype, Reference::in_f64, [&](Call& c) {
        const int64_t V = c.packs ? 2056 : 521;
        const Tensor labels = c.ids({V - 1, -100, 0, 9}), sums = c.of(DType::f64, {C}, {0, 0, 0, 0});
        const Tensor logits = c.result("gradient", {C, V}),
                     statistics = c.result(DType::f64, "statistics", {1, 3, C});
        const LossTerms terms = some_terms(c, C, with_terms);
        LossPartArgs part{.logits = logits, .labels = labels, .statistics = statistics.reshape({3, C})};
        part.cap = terms.cap;
        if (with_terms) part.logit_sums = sums;
        c.ops().loss_part(part, c.stream());
        c.ops().loss_join({.logits = logits,
                           .labels = labels,
                           .statistics = statistics,
                           .loss = c.result(DType::f64, "loss", {1}),
                           .weight = c.result(DType::f64, "weight", {1}),
                           .ids = V,
                           .scale = 0.25,
                           .terms = terms,
                           .logit_sums = part.logit_sums},
                          c.stream());
      });
}

// Products add no bias to f64, nor one of 16 bits to f32; a product of depth 0 is its bias.
TEST_F(EveryKernel, ThatStartsRowsGivesWhatTheCpuGives) {
  expect_the_same("a product of depth 0", Reference::in_f64, [](Call& c) {
    GemmArgs args{.a = c.random({kRows, 0}),
                  .b = c.random({0, kWidth}),
                  .c = c.result("c", kAll),
                  .bias = c.random({kWidth})};
    c.ops().gemm(args, c.stream());
    args.c = c.result("sum", kAll);
    args.accumulate = true;
    c.ops().gemm(args, c.stream());
  });
  for (const DType dtype : {DType::bf16, DType::f16})
    expect_the_same("a bias of 16 bits", dtype, Reference::in_f64, [](Call& c) {
      c.ops().gemm({.a = c.random({kRows, 8}),
                    .b = c.random({8, kWidth}),
                    .c = c.result_wide("c", kAll),
                    .bias = c.random({kWidth}),
                    .accumulate = true},
                   c.stream());
    });
}

// A pack has as many elements as the widest array allows.
TEST_F(EveryKernel, OfElementwiseOptimizersGivesWhatTheCpuGives) {
  const int64_t count = 601;
  const OptimizerControl control{.lr = 0.01, .scale = 0.5, .clip = 0.8, .step = 3};
  for (const auto& [dtype, gradients] :
       {std::pair{DType::f32, DType::bf16}, {DType::f32, DType::f64}, {DType::f64, DType::f32}})
    expect_the_same(text("optimizers with gradients in ", name(gradients)), dtype,
                    Reference::of_the_same_types, [&, of = gradients](Call& c) {
                      const auto step = [&](auto args, const char* p) {
                        args.p = c.result(p, {count});
                        args.g = c.random(of, {count});
                        args.m = c.result(DType::bf16, text("m of ", p), {count});
                        args.copy = c.result(DType::f16, text("copy of ", p), {count});
                        args.control = control;
                        args.weight_decay = 0.1;
                        return args;
                      };
                      AdamWArgs adamw = step(AdamWArgs(), "adamw");
                      adamw.v = c.of(DType::f32, {count}, positive(count));
                      c.ops().adamw(adamw, c.stream());
                      c.ops().lion(step(LionArgs(), "lion"), c.stream());
                      SgdArgs sgd = step(SgdArgs(), "sgd");
                      sgd.momentum = 0.9;
                      c.ops().sgd(sgd, c.stream());
                    });
}
TEST_F(EveryKernel, OfAdamWIn8BitsGivesWhatTheCpuGives) {
  const int64_t rows = 5, columns = 200, count = rows * columns, blocks = rows * code_blocks(columns);
  for (const DType dtype : {DType::f64, DType::f32})
    expect_the_same("adamw8bit", dtype, Reference::of_the_same_types, [&](Call& c) {
      AdamW8bitArgs args;
      args.p = c.result("p", {count});
      args.copy = c.result(DType::bf16, "copy", {count});
      args.g = c.random({count});
      args.m = c.empty(DType::u8, {count});
      args.v = c.empty(DType::u8, {count});
      for (const Tensor& codes : {args.m, args.v}) {
        HostMemory memory(codes);
        for (int64_t i = 0; i < count; ++i) memory.data<uint8_t>()[i] = static_cast<uint8_t>(3 + i * 37);
        memory.write();
      }
      std::vector<double> scales = positive(blocks);
      for (double& x : scales) x /= 32;
      args.m_scale = c.result("m_scale", c.of(DType::f32, {blocks}, scales));
      args.v_scale = c.result("v_scale", c.of(DType::f32, {blocks}, scales));
      args.control = {.lr = 0.01, .scale = 0.5, .clip = 0.8, .step = 3};
      args.columns = columns;
      for (int step = 0; step < 2; ++step) c.ops().adamw8bit(args, c.stream());  // the second reads codes
    });
}
TEST_F(EveryKernel, OfAdafactorGivesWhatTheCpuGives) {
  const int64_t B = 2, R = 40, C = 37;
  for (const DType dtype : {DType::f64, DType::f32})
    expect_the_same("adafactor", dtype, Reference::in_f64, [&](Call& c) {
      const Tensor g = c.random({B, R, C});
      c.ops().factor_sums({.g = g,
                           .rows = c.result(DType::f64, "rows", {B, R}),
                           .columns = c.result(DType::f64, "columns", {B, C}),
                           .g_factor = 0.5},
                          c.stream());
      const auto numbers = [&](DType of, const Shape& shape) {
        std::vector<double> all = positive(shape.count());
        for (double& x : all) x = rounded(DType::f32, x);
        return c.of(of, shape, all);
      };
      const AdafactorNormArgs update{.g = g,
                                     .rows = numbers(c.wide, {B, R}),
                                     .columns = numbers(c.wide, {B, C}),
                                     .totals = numbers(DType::f64, {B}),
                                     .squares = numbers(DType::f64, {1}),
                                     .g_factor = 0.5,
                                     .least = 1e-30,
                                     .row_count = R};
      c.result("squares of the update", update.squares);
      c.ops().adafactor_norm(update, c.stream());
      AdafactorArgs args{.p = c.result("p", {B, R, C}),
                         .copy = {},
                         .p_squares = numbers(DType::f64, {1}),
                         .update = update,
                         .control = {.lr = 0.01, .step = 3},
                         .weight_decay = 0.1};
      args.count = B * R * C;
      c.ops().adafactor(args, c.stream());
    });
}

TEST_F(EveryKernel, OfElementsGivesWhatTheCpuGives) {
  const int64_t count = 601;
  expect_the_same("elements", Reference::of_the_same_types, [&](Call& c) {
    for (const DType to : kFloats) {
      const std::string text = std::string(" to ") + name(to);
      c.ops().cast(c.random({count}), c.result(to, "cast" + text, {count}), c.stream());
      c.ops().cast(c.random({9, 40}).transpose(0, 1), c.result(to, "transposed" + text, {40, 9}), c.stream());
      c.ops().add(c.random({count}), 0.7, c.result(to, "add" + text, {count}), c.stream());
    }
    c.ops().fill(c.result("filled", {count}), 1.25, c.stream());
    c.ops().fill(c.result("ids", c.ids(std::vector<int64_t>(601, 4))), 7, c.stream());
    c.ops().scale(c.result("scaled", {count}), 0.3, c.stream());
    c.ops().divide_by_norm({c.result("divided", {count}), c.of(DType::f64, {1}, {5})}, c.stream());
    c.ops().fill_normal(c.result("normal", {count}), 77, 5, 0.5, c.stream());
    std::vector<double> words;
    for (int64_t i = 0; i < 40; ++i) words.push_back(static_cast<double>(i * 0x01020304));
    const Tensor bytes = c.of(DType::i32, {40}, words);
    const Tensor from(bytes.buffer(), bytes.byte_offset(), DType::u8, {20, 8}),
        to = c.empty(DType::u8, {8, 20});
    c.ops().cast(from.transpose(0, 1), c.result("bytes", to), c.stream());
  });
}

TEST_F(EveryKernel, OfSumsGivesWhatTheCpuGives) {
  const double infinity = std::numeric_limits<double>::infinity();
  expect_the_same("sums", Reference::in_f64, [&](Call& c) {
    c.ops().column_sum(c.random({40, kWidth}), c.result_wide("columns", {kWidth}), c.stream());
    for (const double p : {1.0, 2.0, 2.5, infinity})
      c.ops().norm_power(c.random({4100}), p, c.result(DType::f64, text("norm_power ", p), {1}), c.stream());
    std::vector<double> numbers;
    for (int64_t i = 0; i < 20000; ++i) numbers.push_back(std::sqrt(static_cast<double>(i)));
    for (const DType dtype : {DType::f32, DType::f64})
      for (const int64_t first : {0, 1}) {  // with and without accesses of 16 bytes
        const Tensor x = c.of(dtype, {20000}, numbers).slice(0, first, 19999);
        const Tensor sum = c.result(text("checksum of ", name(dtype), " from ", first), c.ids({1ll << 31}));
        c.ops().checksum({.x = x, .sum = sum, .key = 0xfffffff0}, c.stream());
      }
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 2500; ++i) ids.push_back(i * 7919 % 2503 - 3);
    c.ops().id_range(c.ids(ids), 11, c.result("id_range", c.ids({5, 5, 5})), c.stream());
  });
}

TEST_F(EveryKernel, OfFp8GivesTheCpusBits) {
  const int64_t R = 70, C = 264;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType codes : {DType::f8_e4m3, DType::f8_e5m2})
      for (const Fp8Scale of : {Fp8Scale::tensor, Fp8Scale::row, Fp8Scale::column})
        expect_the_same("fp8", dtype, Reference::of_the_same_types, [&](Call& c) {
          const int64_t scales = of == Fp8Scale::tensor ? 1 : of == Fp8Scale::row ? R : C;
          const Tensor x = c.random({R, C}), scale = c.result(DType::f32, "scale", {scales});
          fp8_ops(c.ops()).fp8_scale({.x = x, .scale = scale, .codes = codes, .of = of}, c.stream());
          const Fp8CodesArgs args{.x = x,
                                  .scale = scale,
                                  .of = of,
                                  .codes = c.result("codes", c.empty(codes, {R, C})),
                                  .transposed = c.result("transposed", c.empty(codes, {C, R}))};
          fp8_ops(c.ops()).fp8_codes(args, c.stream());
        });
}

}  // namespace
}  // namespace gangway
