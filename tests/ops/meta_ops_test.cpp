#include "base/error_of.h"
#include "ops/check.h"
#include "ops/ops_testing.h"
#include "support/test_device.h"

namespace gangway {
namespace {

using namespace ops_testing;

struct Meta {
  Tensor empty(DType dtype, const Shape& shape) {
    return Tensor::allocate(device->allocator(), dtype, shape);
  }
  std::shared_ptr<Device> device = make_device(test::test_meta());
  std::unique_ptr<Ops> ops = make_ops(device);
  Stack temporaries{device->allocator()};
};

template <typename Maker>
HeadLossArgs head(Maker& make, DType dtype, int64_t tokens, int64_t width, int64_t vocabulary) {
  return {.x = make.empty(dtype, {tokens, width}),
          .w = make.empty(dtype, {vocabulary, width}),
          .labels = make.empty(DType::i64, {tokens}),
          .loss = make.empty(DType::f64, {1}),
          .weight = make.empty(DType::f64, {1}),
          .dx = make.empty(dtype, {tokens, width}),
          .dw = make.empty(dtype == DType::f64 ? DType::f64 : DType::f32, {vocabulary, width})};
}

TEST(MetaOps, TouchNoMemory) {
  Meta meta;
  const Tensor a = meta.empty(DType::f32, {4, 5}), b = meta.empty(DType::f32, {5, 6}),
               c = meta.empty(DType::f32, {4, 6});
  Stream& stream = meta.device->stream();
  meta.ops->gemm({.a = a, .b = b, .c = c, .bias = {}}, stream);
  meta.ops->cast(a, meta.empty(DType::bf16, {4, 5}), stream);
  meta.ops->fill(a, 1, stream);
  meta.ops->add(a, 1, a, stream);
  meta.ops->scale(a, 2, stream);
  meta.ops->column_sum(a, meta.empty(DType::f32, {5}), stream);
  meta.ops->norm_power(a, 2, meta.empty(DType::f64, {1}), stream);
  meta.ops->checksum({.x = a, .sum = meta.empty(DType::i64, {1})}, stream);
  meta.ops->fill_normal(a, 1, 0, 1, stream);
  meta.ops->id_range(meta.empty(DType::i64, {3}), -100, meta.empty(DType::i64, {3}), stream);
  EXPECT_EQ(a.raw(), nullptr);
}

TEST(MetaOps, RefuseTheShapesThatARunRefuses) {
  Meta meta;
  Stream& stream = meta.device->stream();
  const Tensor a = meta.empty(DType::f32, {4, 5});
  EXPECT_THROW(meta.ops->gemm({.a = a, .b = a, .c = a, .bias = {}}, stream), Error);
  EXPECT_THROW(meta.ops->cast(a, meta.empty(DType::f32, {5, 4}), stream), Error);
  EXPECT_THROW(meta.ops->fill(a.transpose(0, 1), 1, stream), Error);
  EXPECT_THROW(meta.ops->add(a, 1, meta.empty(DType::f32, {21}), stream), Error);
  EXPECT_THROW(meta.ops->column_sum(a, meta.empty(DType::bf16, {5}), stream), Error);
  EXPECT_THROW(meta.ops->norm_power(a, 2, meta.empty(DType::f32, {1}), stream), Error);
  EXPECT_THROW(meta.ops->checksum({.x = a, .sum = meta.empty(DType::f64, {1})}, stream), Error);
  EXPECT_THROW(meta.ops->id_range(meta.empty(DType::i32, {3}), -100, meta.empty(DType::i64, {3}), stream),
               Error);
  HeadLossArgs args = head(meta, DType::f32, 4, 5, 6);
  args.dw = meta.empty(DType::bf16, {6, 5});
  EXPECT_THROW(meta.ops->head_loss(args, meta.temporaries, stream), Error);
  EXPECT_THROW(meta.ops->adamw({.p = a, .g = a, .m = a, .v = a, .copy = {}, .control = {}}, stream),
               Error);  // step 0
}

TEST(MetaOps, HeadLossTakesTheTemporariesOfARun) {
  for (DType dtype : kFloats)
    for (int64_t tokens : {0, 1, 100, 700, 5000}) {
      const int64_t vocabulary = tokens < 1000 ? 6000 : 16;
      Meta meta;
      Bench bench;
      HeadLossArgs args = head(bench, dtype, tokens, 8, vocabulary);
      bench.ops->fill(args.x, 0, bench.stream());
      bench.ops->fill(args.w, 0, bench.stream());
      bench.ops->fill(args.loss, 0, bench.stream());
      bench.ops->fill(args.weight, 0, bench.stream());
      assign(args.labels, std::vector<double>(static_cast<size_t>(tokens), 1));
      bench.ops->head_loss(args, bench.temporaries, bench.stream());
      meta.ops->head_loss(head(meta, dtype, tokens, 8, vocabulary), meta.temporaries, meta.device->stream());
      EXPECT_EQ(meta.temporaries.high_water_bytes(), bench.temporaries.high_water_bytes()) << tokens;
      EXPECT_EQ(meta.temporaries.used_bytes(), 0u);
    }
}

TEST(MetaOps, HeadLossHasLargerChunksOnGpus) {
  struct Case {
    int64_t tokens, vocabulary, on_cpu, on_gpu;
  };
  for (const Case& c : {Case{0, 6000, 0, 0},
                        {1, 6000, 1, 1},
                        {4096, 128256, 64, 2048},
                        {4096, 128255, 64, 2048},
                        {8192, 50000, 80, 4096},
                        {8192, 1, 512, 4096},
                        {8192, 80000, 64, 3328}}) {
    for (const auto& [name, rows] : {std::pair{"meta", c.on_cpu}, {"meta:cuda", c.on_gpu}}) {
      Meta meta;
      meta.device = make_device(name);
      Stack temporaries(meta.device->allocator());
      const HeadLossArgs args = head(meta, DType::bf16, c.tokens, 8, c.vocabulary);
      EXPECT_EQ(head_loss_logits(args, temporaries).shape(), (Shape{rows, c.vocabulary}))
          << name << ", " << c.tokens << ", " << c.vocabulary;
    }
  }
}

// The figures of cuDNN 9.19 for sm_90, and a kilobyte.
TEST(MetaOps, AttentionOnAGpuHasAWorkspaceForItsBackward) {
  struct Case {
    DType dtype;
    int64_t batch, queries, heads, width;
    size_t bytes;
  };
  constexpr size_t kMore = 1024;
  for (const Case& c : {Case{DType::bf16, 2, 256, 8, 128, 4210688 + kMore},
                        {DType::f16, 2, 256, 8, 64, 3162112 + kMore},
                        {DType::bf16, 2, 1024, 32, 128, 168034304 + kMore},
                        {DType::bf16, 1, 4096, 32, 128, 1141374976 + kMore},
                        {DType::bf16, 2, 4096, 32, 128, 0},  // above 2 GiB
                        {DType::bf16, 1, 1 << 20, 1 << 10, 256, 0},
                        {DType::bf16, 0, 256, 8, 128, 0},
                        {DType::bf16, 2, 0, 8, 128, 0},
                        {DType::bf16, 2, 255, 8, 128, 0},
                        {DType::bf16, 2, 256, 8, 60, 0},
                        {DType::bf16, 2, 256, 8, 264, 0},
                        {DType::f32, 2, 256, 8, 128, 0},
                        {DType::f64, 2, 256, 8, 128, 0}})
    for (const char* const name : {"meta", "meta:cuda"}) {
      const auto device = make_device(name);
      const auto ops = make_ops(device);
      const auto empty = [&](DType dtype, const Shape& shape) {
        return Tensor::allocate(device->allocator(), dtype, shape);
      };
      const Tensor x = empty(c.dtype, {c.batch, c.queries, c.heads, c.width});
      AttentionBackwardArgs args = {x, x, x, x, empty(DType::f32, {c.batch, c.heads, c.queries}), x, x, x, x};
      const size_t bytes = device->name() == "meta" ? 0 : c.bytes;
      EXPECT_EQ(ops->attention_workspace_bytes(args), bytes) << name << ", " << x.text();
      args.cap = 30;
      EXPECT_EQ(ops->attention_workspace_bytes(args), 0u) << "scores with a cap";
    }
}

TEST(MetaOps, AMetaDeviceForAnythingButGpusIsRefused) {
  const Error error = test::error_of([] { make_device("meta:rocm"); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_EQ(error.message(), "device \"meta:rocm\" is no meta device: write meta (for CPUs) or meta:cuda");
}

TEST(DescribePaths, NameTheInstructionSet) {
  const std::shared_ptr<Device> device = make_device("cpu");
  for (cpu::Isa isa : available_isas()) {
    const std::unique_ptr<Ops> ops = cpu::make_cpu_ops(device, isa);
    EXPECT_NE(describe_paths(*ops).find(cpu::name(isa)), std::string::npos);
  }
  Meta meta;
  EXPECT_NE(describe_paths(*meta.ops).find("shape checks"), std::string::npos);
}

TEST(MakeOps, ServeTheDeviceTheyAreMadeFor) {
  const std::shared_ptr<Device> device = make_device("cpu");
  EXPECT_EQ(&make_ops(device)->device(), device.get());
}

}  // namespace
}  // namespace gangway
