// Operations whose time is that of their memory touch hardly more sectors of 32 bytes than their arguments
// have. Only the compiled code tells which elements a thread reads or writes at once, so this needs PTX:
// tests/cuda_build.sh runs it.
#include "gpu_emulation/cuda_ops_testing.h"
#include "gpu_emulation/warp_accesses.h"

namespace gangway {
namespace {

using namespace ops_testing;

constexpr double kMost = 1.1;
constexpr int64_t kRows = 8;

class Sectors : public OnSoftwareGpu {
 protected:
  void SetUp() override {
    ASSERT_NE(std::getenv("GPU_EMULATION_PTX"), nullptr) << "it names the folder of PTX";
  }
  Tensor random(DType dtype, const Shape& shape) { return random_tensor(bench_, dtype, shape, ++seed_); }

  // `moved`: the tensors that the call reads or writes once. `again`: bytes that it reads again, from the
  // cache.
  void expect_few(const std::string& what, const std::vector<Tensor>& moved, size_t again,
                  const std::function<void()>& call) {
    bench_.stream().synchronize();
    gpu_emulation::watch_warps();
    call();
    bench_.stream().synchronize();
    const auto touched = 32 * static_cast<double>(gpu_emulation::take_warps().sectors);
    double bytes = 0;
    for (const Tensor& t : moved) bytes += static_cast<double>(t.bytes());
    EXPECT_GE(touched, bytes) << what << ": the call does not move what this test counts";
    EXPECT_LE(touched, kMost * (bytes + static_cast<double>(again))) << what;
    EXPECT_EQ(gpu_emulation::report(), "");
  }

  Bench bench_;
  uint32_t seed_ = 0;
};

constexpr DType kTypes[] = {DType::f32, DType::bf16};

TEST_F(Sectors, OfRotationsAreThoseOfTheirBytes) {
  const int64_t heads = 4, width = 128;
  for (const DType dtype : kTypes)
    for (const int64_t half : {64, 32}) {  // whole heads turn, or a half of each, and the rest is copied
      const Tensor x = random(dtype, {kRows, heads * width}), y = bench_.empty(dtype, x.shape()),
                   cos = random(DType::f32, {kRows, half}), sin = random(DType::f32, {kRows, half});
      const auto again = static_cast<size_t>(heads - 1) * (cos.bytes() + sin.bytes());  // for each head
      expect_few(text("rope, ", name(dtype), ", half ", half), {x, y, cos, sin}, again, [&] {
        bench_.ops->rope(
            {.x = x, .y = y, .cos = cos, .sin = sin, .positions = {}, .heads = heads, .sequence = kRows},
            bench_.stream());
      });
    }
}

TEST_F(Sectors, OfSwigluAreThoseOfItsBytes) {
  for (const DType dtype : kTypes) {
    const Shape all{kRows, 1024};
    const Tensor gate = random(dtype, all), up = random(dtype, all), dy = random(dtype, all),
                 y = bench_.empty(dtype, all), dgate = bench_.empty(dtype, all),
                 dup = bench_.empty(dtype, all);
    expect_few(text("swiglu, ", name(dtype)), {gate, up, y}, 0, [&] {
      bench_.ops->swiglu({gate, up, y}, bench_.stream());
    });
    expect_few(text("swiglu_backward, ", name(dtype)), {gate, up, dy, dgate, dup, y}, 0, [&] {
      bench_.ops->swiglu_backward({gate, up, dy, dgate, dup, y}, bench_.stream());
    });
  }
}

// Rows stay in shared memory between the passes. Each row reads the weight, in the backward twice.
TEST_F(Sectors, OfRmsNormAreThoseOfItsBytes) {
  const int64_t D = 1024;
  for (const DType dtype : kTypes) {
    const Shape all{kRows, D};
    const Tensor x = random(dtype, all), residual = random(dtype, all), weight = random(dtype, {D}),
                 dy = random(dtype, all), y = bench_.empty(dtype, all), sum = bench_.empty(dtype, all),
                 dx = bench_.empty(dtype, all), rstd = bench_.empty(DType::f32, {kRows});
    expect_few(text("rmsnorm, ", name(dtype)), {x, residual, sum, weight, y}, (kRows - 1) * weight.bytes(),
               [&] {
                 bench_.ops->rmsnorm(
                     {.x = x, .residual = residual, .weight = weight, .y = y, .sum = sum, .rstd = rstd},
                     bench_.stream());
               });
    expect_few(text("rmsnorm_backward, ", name(dtype)), {dy, x, weight, dx}, (2 * kRows - 1) * weight.bytes(),
               [&] {
                 bench_.ops->rmsnorm_backward({.dy = dy,
                                               .x = x,
                                               .weight = weight,
                                               .rstd = rstd,
                                               .dsum = {},
                                               .dx = dx,
                                               .dweight = {},
                                               .y = {}},
                                              bench_.stream());
               });
  }
}

}  // namespace
}  // namespace gangway
