// Compares the software GPU's instructions of ops/cuda/ptx.h with what the PTX ISA states.
#include <cmath>
#include <random>

#include "gpu_emulation/emulation_testing.h"
#include "ops/cuda/ptx.h"

namespace gangway::cuda {
namespace {

using gpu_emulation::Emulation;
using gpu_emulation::start;

class Ptx : public Emulation {};

// The place of a lane's element i in a matrix, by the formulas of "Matrix Fragments for mma.m16n8k16 with
// floating point type".
struct Place {
  int row, column;
};
Place place_in_a(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8,
          i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
}
Place place_in_b(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, group};
}
Place place_in_sum(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}

template <typename T>
uint32_t pair_of(float first, float second) {
  return narrow<T>(first).bits | static_cast<uint32_t>(narrow<T>(second).bits) << 16;
}

template <typename T>
void multiply(const float* a, const float* b, float* sum) {  // 16 x 16, 16 x 8, 16 x 8
  const int lane = static_cast<int>(threadIdx.x);
  const auto of_a = [&](int i) {
    const Place at = place_in_a(lane, i);
    return a[at.row * 16 + at.column];
  };
  const auto of_b = [&](int i) {
    const Place at = place_in_b(lane, i);
    return b[at.row * 8 + at.column];
  };
  uint32_t x[4], y[2];
  for (int i = 0; i < 4; ++i) x[i] = pair_of<T>(of_a(2 * i), of_a(2 * i + 1));
  for (int i = 0; i < 2; ++i) y[i] = pair_of<T>(of_b(2 * i), of_b(2 * i + 1));
  float mine[4];
  const auto in_sum = [&](int i) -> float& {
    const Place at = place_in_sum(lane, i);
    return sum[at.row * 8 + at.column];
  };
  for (int i = 0; i < 4; ++i) mine[i] = in_sum(i);
  mma_m16n8k16<T>(mine, x, y[0], y[1]);
  for (int i = 0; i < 4; ++i) in_sum(i) = mine[i];
}

std::vector<float> whole_numbers(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(static_cast<int>(engine() % 255) - 127);
  return values;
}

TEST_F(Ptx, MmaAddsTheProductOfFragmentsThatLieAsTheIsaStates) {
  const std::vector<float> a = whole_numbers(256, 1), b = whole_numbers(128, 2), c = whole_numbers(128, 3);
  std::vector<float> want = c;
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j)
      for (size_t k = 0; k < 16; ++k) want[i * 8 + j] += a[i * 16 + k] * b[k * 8 + j];
  for (uint32_t seed = 0; seed < 6; ++seed)
    for (auto* const kernel : {multiply<Bf16>, multiply<Half>}) {
      set_seed(seed);
      const float *const on_a = device(a), *const on_b = device(b);
      float* const sum = device(c);
      ASSERT_EQ(start(kernel, 1, 32, 0, stream_, on_a, on_b, sum), cudaSuccess);
      EXPECT_EQ(host(sum, 128), want) << seed;
    }
}

TEST_F(Ptx, MmaByAWarpThatHasFewerThreadsIsAFault) {
  const float *const a = device(whole_numbers(256, 1)), *const b = device(whole_numbers(128, 2));
  ASSERT_EQ(start(multiply<Bf16>, 1, 31, 0, stream_, a, b, device(whole_numbers(128, 3))), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "a thread of its warp has ended or does not exist, mma at ");
}

// Row r of matrix m has the elements from 64 m + 8 r on. It is stored as row r * 5 % 8 of its matrix.
template <bool transposed>
void read_matrices(float* to) {  // [32 lanes, 4 matrices, 2]
  auto* const rows = static_cast<uint16_t*>(gpu_emulation::shared_memory());
  const int lane = static_cast<int>(threadIdx.x), matrix = lane / 8;
  uint16_t* const row = rows + (matrix * 8 + lane % 8 * 5 % 8) * 8;
  for (int e = 0; e < 8; ++e) row[e] = static_cast<uint16_t>(lane * 8 + e);
  __syncwarp();
  uint32_t got[4];
  ldmatrix_x4<transposed>(got, row);
  for (int m = 0; m < 4; ++m) {
    to[lane * 8 + m * 2] = static_cast<float>(got[m] & 0xffff);
    to[lane * 8 + m * 2 + 1] = static_cast<float>(got[m] >> 16);
  }
}

TEST_F(Ptx, LdmatrixGivesALaneTwoElementsOfARowOrTransposedOfAColumn) {
  const auto read = [&](void (*kernel)(float*)) {
    float* const to = device(std::vector<float>(256));
    EXPECT_EQ(start(kernel, 1, 32, 512, stream_, to), cudaSuccess);
    return host(to, 256);
  };
  const std::vector<float> plain = read(read_matrices<false>), transposed = read(read_matrices<true>);
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < 4; ++m)
      for (int i = 0; i < 2; ++i) {
        const int row = lane / 4, column = lane % 4 * 2 + i;
        const auto at = static_cast<size_t>(lane * 8 + m * 2 + i);
        EXPECT_EQ(plain[at], static_cast<float>(m * 64 + row * 8 + column));
        EXPECT_EQ(transposed[at], static_cast<float>(m * 64 + column * 8 + row));
      }
}

void read_matrices_at_odd_rows() {
  uint32_t got[4];
  ldmatrix_x4<false>(got, static_cast<char*>(gpu_emulation::shared_memory()) + 8);
}
TEST_F(Ptx, ARowOfLdmatrixThatIsNotAlignedIsAFault) {
  ASSERT_EQ(start(read_matrices_at_odd_rows, 1, 32, 512, stream_), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "has an address that is not aligned, ldmatrix at ");
}

// Reads before and after the wait, for copies of 16 and of 4 bytes, with and without a source.
void copy(const float* from, float* to) {
  auto* const shared = static_cast<float*>(gpu_emulation::shared_memory());
  for (int i = 0; i < 10; ++i) shared[i] = 1;
  cp_async<16>(shared, from, true);
  cp_async<16>(shared + 4, from, false);
  cp_async<4>(shared + 8, from + 5, true);
  cp_async<4>(shared + 9, from + 6, false);
  for (int i = 0; i < 10; ++i) to[i] = shared[i];
  cp_async_wait();
  for (int i = 0; i < 10; ++i) to[10 + i] = shared[i];
}
TEST_F(Ptx, WhatIsCopiedAsynchronouslyIsNanUntilTheWait) {
  float *const from = device({1, 2, 3, 4, 5, 6, 7, 8}), *const to = device(std::vector<float>(20));
  ASSERT_EQ(start(copy, 1, 1, 40, stream_, const_cast<const float*>(from), to), cudaSuccess);
  const std::vector<float> got = host(to, 20);
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(std::isnan(got[i])) << i;
  EXPECT_EQ(std::vector<float>(got.begin() + 10, got.end()),
            (std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0, 6, 0}));
}

void copy_from_the_next(const float* from) { cp_async<16>(gpu_emulation::shared_memory(), from + 1, true); }
TEST_F(Ptx, AnAsynchronousCopyFromAnAddressThatIsNotAlignedIsAFault) {
  ASSERT_EQ(
      start(copy_from_the_next, 1, 1, 16, stream_, const_cast<const float*>(device(std::vector<float>(8)))),
      cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, "has an address that is not aligned, cp.async at ");
}

TEST_F(Ptx, APairHasItsFirstNumberInTheLowerHalfRoundedToNearestEven) {
  EXPECT_EQ(pack_pair<Bf16>(1.0f, -2.0f), 0xc0003f80u);
  EXPECT_EQ(pack_pair<Bf16>(1.0f + 0x1p-8f, 1.0f + 0x3p-8f), 0x3f823f80u);
  EXPECT_EQ(pack_pair<Half>(1.0f, -2.0f), 0xc0003c00u);
  EXPECT_EQ(pack_pair<Half>(1.0f + 0x1p-11f, 1.0f + 0x3p-11f), 0x3c023c00u);
}

}  // namespace
}  // namespace gangway::cuda
