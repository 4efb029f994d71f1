// What cuDNN is asked for: the plain description of a call, read by an interpreter, computes what the
// definition says; and the table of which calls go to cuDNN.
#include "gpu_emulation/attention_interpreter.h"
#include "ops/kernel_testing.h"

namespace gangway::cuda {
namespace {

using namespace ops_testing;

struct Case {
  int64_t batch, queries, keys, heads, groups, width;
  bool causal;
  bool fused;  // q, k and v as slices of one projection; else heads and sequence exchanged in memory
};
constexpr Case kCases[] = {{2, 5, 5, 4, 2, 8, true, true},     {1, 7, 7, 3, 3, 16, false, true},
                           {2, 4, 9, 6, 2, 8, true, false},    {1, 9, 4, 2, 1, 24, true, false},
                           {3, 6, 11, 4, 4, 8, false, false},  {1, 2, 3, 1, 1, 8, true, false},
                           {1, 130, 70, 4, 1, 64, true, false}};

// Operands with the strides of a case, and a second set of outputs for the definition (the CPU's operations).
struct Operands {
  Operands(Bench& bench, DType dtype, const Case& c) {
    const auto heads = [&](int64_t rows, int64_t count) {
      return c.fused ? bench.empty(dtype, {c.batch, rows, count, c.width})
                     : bench.empty(dtype, {c.batch, count, rows, c.width}).transpose(1, 2);
    };
    const auto projection = [&](Tensor& x, Tensor& y, Tensor& z) {
      if (!c.fused) {
        x = heads(c.queries, c.heads);
        y = heads(c.keys, c.groups);
        z = heads(c.keys, c.groups);
        return;
      }
      const Tensor all = bench.empty(dtype, {c.batch, c.queries, c.heads + 2 * c.groups, c.width});
      x = all.slice(2, 0, c.heads);
      y = all.slice(2, c.heads, c.heads + c.groups);
      z = all.slice(2, c.heads + c.groups, c.heads + 2 * c.groups);
    };
    projection(q, k, v);
    projection(dq, dk, dv);
    out = heads(c.queries, c.heads);
    dout = heads(c.queries, c.heads);
    lse = bench.empty(DType::f32, {c.batch, c.heads, c.queries});
    uint32_t seed = 1;
    for (const Tensor* t : {&q, &k, &v, &dout})
      assign(*t, random_values(static_cast<size_t>(t->count()), seed++));
    args = {q, k, v, out, lse, 0.37, c.causal, 3, 3};
    backward = {q, k, v, out, lse, dout, dq, dk, dv, 0.37, c.causal, 3, 3, false};
  }
  Tensor q, k, v, out, lse, dout, dq, dk, dv;
  AttentionArgs args;
  AttentionBackwardArgs backward;
};

void interpret(const AttentionCall& call) { gpu_emulation::interpret(call.graph, call.pointers); }

std::string text_of(const Case& c, DType dtype) {
  return text(name(dtype), " ", c.queries, " by ", c.keys, " heads ", c.heads, "/", c.groups, " width ",
              c.width, c.causal ? " causal" : " full");
}

TEST(AttentionGraph, ADescribedForwardIsTheDefinition) {
  Bench bench;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Case& c : kCases) {
      const Operands o(bench, dtype, c);
      interpret(call_of(o.args));
      const auto out = values(o.out), lse = values(o.lse);
      bench.ops->attention(o.args, bench.stream());
      expect_close(out, values(o.out), tolerance_of(dtype), "out " + text_of(c, dtype));
      expect_close(lse, values(o.lse), 2e-5, "lse " + text_of(c, dtype));
    }
}

TEST(AttentionGraph, ADescribedBackwardIsTheDefinition) {
  Bench bench;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Case& c : kCases) {
      const Operands o(bench, dtype, c);
      bench.ops->attention(o.args, bench.stream());
      interpret(call_of(o.backward));
      const auto dq = values(o.dq), dk = values(o.dk), dv = values(o.dv);
      bench.ops->attention_backward(o.backward, bench.stream());
      const double tolerance = 5 * rounding_of(dtype);
      expect_close(dq, values(o.dq), tolerance, "dq " + text_of(c, dtype), 0.2);
      expect_close(dk, values(o.dk), tolerance, "dk " + text_of(c, dtype), 0.2);
      expect_close(dv, values(o.dv), tolerance, "dv " + text_of(c, dtype), 0.2);
    }
}

TEST(AttentionGraph, DimsAreBatchHeadsRowsWidthWithTheTensorsStrides) {
  Bench bench;
  const Operands o(bench, DType::bf16, {2, 5, 5, 4, 2, 8, true, true});
  const AttentionCall call = call_of(o.backward);
  using Four = std::array<int64_t, 4>;
  EXPECT_EQ(call.graph[Operand::q].dims, (Four{2, 4, 5, 8}));
  EXPECT_EQ(call.graph[Operand::q].strides, (Four{5 * 64, 8, 64, 1}));
  EXPECT_EQ(call.graph[Operand::dv].dims, (Four{2, 2, 5, 8}));
  EXPECT_EQ(call.graph[Operand::dv].strides, (Four{5 * 64, 8, 64, 1}));
  EXPECT_EQ(call.graph[Operand::lse].dims, (Four{2, 4, 5, 1}));
  EXPECT_EQ(call.graph[Operand::lse].strides, (Four{20, 5, 1, 1}));
  EXPECT_EQ(call.graph[Operand::lse].dtype, DType::f32);
  EXPECT_EQ(call.pointers[static_cast<size_t>(Operand::dk)], o.dk.raw());
  EXPECT_EQ(call.graph.scale, 0.37f);
}

TEST(AttentionGraph, ADimOfOneElementHasThePackedStride) {
  Bench bench;
  Operands o(bench, DType::bf16, {1, 6, 6, 4, 2, 8, true, true});
  o.args.q = o.q.slice(2, 1, 2);  // one head, 64 elements from row to row
  const OperandLayout q = call_of(o.args).graph[Operand::q];
  using Four = std::array<int64_t, 4>;
  EXPECT_EQ(q.dims, (Four{1, 1, 6, 8}));
  EXPECT_EQ(q.strides, (Four{6 * 64, 6 * 64, 64, 1}));
}

TEST(AttentionGraph, AnAbsentLseIsNotDescribed) {
  Bench bench;
  Operands o(bench, DType::bf16, kCases[0]);
  o.args.lse = {};
  const AttentionCall call = call_of(o.args);
  EXPECT_FALSE(call.graph[Operand::lse].present);
  EXPECT_EQ(call.pointers[static_cast<size_t>(Operand::lse)], nullptr);
  EXPECT_NE(call.graph, call_of(Operands(bench, DType::bf16, kCases[0]).args).graph);
}

// The table.
struct Refusal {
  const char* words;
  void (*change)(AttentionCall& call);
  int architecture = 90;
};

void set_width(AttentionCall& call, int64_t width) {
  for (OperandLayout& layout : call.graph.operands) layout.dims[3] = width;
}
void set_rows(AttentionCall& call, int64_t queries, int64_t keys) {
  for (const Operand o : {Operand::q, Operand::out, Operand::dout, Operand::dq})
    call.graph[o].dims[2] = queries;
  for (const Operand o : {Operand::k, Operand::v, Operand::dk, Operand::dv}) call.graph[o].dims[2] = keys;
}

AttentionCall base_call(Bench& bench) {
  const Operands o(bench, DType::bf16, {1, 128, 128, 2, 1, 64, true, true});
  AttentionCall call = call_of(o.backward);
  for (void*& pointer : call.pointers) pointer = reinterpret_cast<void*>(uintptr_t{1} << 20);
  return call;
}

constexpr Refusal kRefusals[] = {
    {"the GPU is none of sm_8x, sm_90 and sm_10x", [](AttentionCall&) {}, 120},
    {"the dtype is neither bf16 nor f16",
     [](AttentionCall& c) {
       for (OperandLayout& layout : c.graph.operands) layout.dtype = DType::f32;
     }},
    {"gradients are added to what is there", [](AttentionCall& c) { c.accumulate = true; }},
    {"key ranges limit what queries see (documents, windows)", [](AttentionCall& c) { c.ranges = true; }},
    {"scores have a cap", [](AttentionCall& c) { c.cap = true; }},
    {"heads have sinks", [](AttentionCall& c) { c.sinks = true; }},
    {"gradients are wider than the activations",
     [](AttentionCall& c) { c.graph[Operand::dk].dtype = c.graph[Operand::dv].dtype = DType::f32; }},
    {"queries and keys of a causal call begin at different positions",
     [](AttentionCall& c) { c.offset = 1; }},
    {"the width of a head is no multiple of 8", [](AttentionCall& c) { set_width(c, 60); }},
    {"heads are wider than 128 (256 on sm_90)", [](AttentionCall& c) { set_width(c, 136); }, 80},
    {"there are fewer than 2 queries or keys", [](AttentionCall& c) { set_rows(c, 1, 128); }},
    {"a backward's numbers of queries and keys are no multiples of 128",
     [](AttentionCall& c) { set_rows(c, 128, 192); }},
    {"batch or heads are 0, or more than 65535",
     [](AttentionCall& c) { c.graph[Operand::q].dims[0] = 65536; }},
    {"an address or a stride is no multiple of 16 bytes",
     [](AttentionCall& c) { c.graph[Operand::dout].strides[2] += 4; }},
};

TEST(AttentionTable, EveryReasonRefusesACallOfItsOwn) {
  Bench bench;
  const AttentionCall base = base_call(bench);
  std::string all;
  for (const Refusal& refusal : kRefusals) {
    AttentionCall call = base;
    refusal.change(call);
    const char* const why = why_own_kernels(call, refusal.architecture);
    EXPECT_STREQ(why, refusal.words);
    all += std::string(refusal.words) + "\n";
  }
  EXPECT_EQ(all_reasons(""), all) << "a reason is not tested";
}

TEST(AttentionTable, CudnnIsAskedForWhatItTakes) {
  Bench bench;
  const AttentionCall base = base_call(bench);
  for (const int architecture : {80, 86, 89, 90, 100, 103})
    EXPECT_EQ(why_own_kernels(base, architecture), nullptr) << architecture;
  const auto taken = [&](void (*change)(AttentionCall&), int architecture = 90) {
    AttentionCall call = base;
    change(call);
    return why_own_kernels(call, architecture) == nullptr;
  };
  EXPECT_TRUE(taken([](AttentionCall& c) { set_width(c, 128); }, 80));
  EXPECT_TRUE(taken([](AttentionCall& c) { set_width(c, 256); }, 90));
  EXPECT_FALSE(taken([](AttentionCall& c) { set_width(c, 256); }, 100));
  EXPECT_TRUE(taken([](AttentionCall& c) { set_rows(c, 256, 128); }));
  EXPECT_TRUE(taken([](AttentionCall& c) {
    c.graph.backward = false;
    set_rows(c, 5, 77);
  }));
  EXPECT_TRUE(taken([](AttentionCall& c) {
    for (OperandLayout& layout : c.graph.operands)
      if (layout.dtype == DType::bf16) layout.dtype = DType::f16;
  }));
  EXPECT_FALSE(
      taken([](AttentionCall& c) { c.graph[Operand::k].strides[1] = 0, c.graph[Operand::k].dims[1] = 2; }));
  EXPECT_FALSE(taken([](AttentionCall& c) { c.pointers[0] = static_cast<char*>(c.pointers[0]) + 2; }));
}

TEST(AttentionTable, ACallTellsOfItsRangesItsCapAndItsSinks) {
  Bench bench;
  Operands o(bench, DType::bf16, kCases[0]);
  const AttentionCall plain = call_of(o.args);
  EXPECT_FALSE(plain.ranges || plain.cap || plain.sinks);
  o.args.first_key = o.args.end_key = bench.empty(DType::i32, {1, 5});
  o.args.cap = 50;
  o.args.sinks = bench.empty(DType::bf16, {4});
  const AttentionCall call = call_of(o.args);
  EXPECT_TRUE(call.ranges && call.cap && call.sinks);
}

TEST(AttentionTable, OffsetsCountInCausalCallsOnly) {
  Bench bench;
  Operands o(bench, DType::bf16, kCases[1]);
  o.args.q_offset = 100;
  EXPECT_EQ(call_of(o.args).offset, 0);
  o.args.causal = true;
  EXPECT_EQ(call_of(o.args).offset, 97);
}

}  // namespace
}  // namespace gangway::cuda
