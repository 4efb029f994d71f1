// Tools for tests of operations: random tensors, conversion from and to f64 vectors, comparison, every
// available instruction set.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "device/device.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/ops.h"
#include "support/host_memory.h"
#include "tensor/tensor.h"

namespace gangway::ops_testing {

using test::HostMemory;
using test::on_cpu;
using test::test_device;

// The device of the test, its Ops and a stack of temporaries. `cap`: for a cpu.
struct Bench {
  explicit Bench(cpu::Isa cap = cpu::configured_isa(), int threads = 1)
      : device(make_device(test_device(), {.index = 0, .threads = threads})),
        ops(on_cpu() ? cpu::make_cpu_ops(device, cap) : make_ops(device)),
        temporaries(device->allocator()) {}
  Stream& stream() { return device->stream(); }
  Tensor empty(DType dtype, const Shape& shape) {
    return Tensor::allocate(device->allocator(), dtype, shape);
  }

  std::shared_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  Stack temporaries;
};

// The instruction sets of this processor, lowest first; elsewhere than on a cpu the one that its operations take.
inline std::vector<cpu::Isa> available_isas() {
  if (!on_cpu()) return {cpu::configured_isa()};
  std::vector<cpu::Isa> all;
  for (cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512})
    if (isa <= cpu::processor_isa()) all.push_back(isa);
  return all;
}

// Element i of a row-major walk over any strides lies here.
inline int64_t place(const Tensor& t, int64_t i) {
  int64_t at = 0;
  for (int d = t.rank() - 1; d >= 0; --d) {
    at += i % t.dim(d) * t.stride(d);
    i /= t.dim(d);
  }
  return at;
}

inline double element(const HostMemory& t, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::f64: return t.data<double>()[at];
    case DType::f32: return t.data<float>()[at];
    case DType::bf16: return to_f32(t.data<bf16_t>()[at]);
    case DType::f16: return to_f32(t.data<f16_t>()[at]);
    case DType::i64: return static_cast<double>(t.data<int64_t>()[at]);
    case DType::i32: return t.data<int32_t>()[at];
    default: ADD_FAILURE() << "element of " << name(dtype); return 0;
  }
}

inline void set_element(const HostMemory& t, DType dtype, int64_t at, double value) {
  switch (dtype) {
    case DType::f64: t.data<double>()[at] = value; break;
    case DType::f32: t.data<float>()[at] = static_cast<float>(value); break;
    case DType::bf16: t.data<bf16_t>()[at] = to_bf16(static_cast<float>(value)); break;
    case DType::f16: t.data<f16_t>()[at] = to_f16(static_cast<float>(value)); break;
    case DType::i64: t.data<int64_t>()[at] = static_cast<int64_t>(value); break;
    case DType::i32: t.data<int32_t>()[at] = static_cast<int32_t>(value); break;
    default: ADD_FAILURE() << "set_element of " << name(dtype);
  }
}

inline double element(const Tensor& t, int64_t i) { return element(HostMemory(t), t.dtype(), place(t, i)); }

inline void set_element(const Tensor& t, int64_t i, double value) {
  HostMemory memory(t);
  set_element(memory, t.dtype(), place(t, i), value);
  memory.write();
}

inline std::vector<double> values(const Tensor& t) {
  const HostMemory memory(t);
  std::vector<double> out(static_cast<size_t>(t.count()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = element(memory, t.dtype(), place(t, static_cast<int64_t>(i)));
  return out;
}

inline void assign(const Tensor& t, const std::vector<double>& from) {
  ASSERT_EQ(static_cast<int64_t>(from.size()), t.count());
  HostMemory memory(t);
  for (size_t i = 0; i < from.size(); ++i)
    set_element(memory, t.dtype(), place(t, static_cast<int64_t>(i)), from[i]);
  memory.write();
}

inline Tensor tensor(Bench& bench, DType dtype, const Shape& shape, const std::vector<double>& from) {
  Tensor t = bench.empty(dtype, shape);
  assign(t, from);
  return t;
}

inline std::vector<double> random_values(size_t count, uint32_t seed, double deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> out(count);
  for (double& x : out) x = normal(engine);
  return out;
}

// Normal values, rounded to the dtype; the same numbers for the same seed and shape in every dtype.
inline Tensor random_tensor(Bench& bench, DType dtype, const Shape& shape, uint32_t seed,
                            double deviation = 1) {
  return tensor(bench, dtype, shape, random_values(static_cast<size_t>(shape.count()), seed, deviation));
}

// A view [rows, columns] whose rows lie `gap` elements apart more than they are long.
inline Tensor with_gap(Bench& bench, DType dtype, int64_t rows, int64_t columns, int64_t gap) {
  return bench.empty(dtype, {rows, columns + gap}).slice(1, 0, columns);
}

inline Tensor ids_tensor(Bench& bench, const std::vector<int64_t>& ids) {
  Tensor t = bench.empty(DType::i64, {static_cast<int64_t>(ids.size())});
  HostMemory memory(t);
  std::copy(ids.begin(), ids.end(), memory.data<int64_t>());
  memory.write();
  return t;
}

// |got - want| <= tolerance * (largest |want| + floor), element by element.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                         const std::string& what, double floor = 1e-30) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = floor;
  for (double x : want)
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got[i] || (std::isnan(want[i]) && std::isnan(got[i]))) continue;
    ASSERT_LE(std::fabs(got[i] - want[i]), tolerance * largest)
        << what << ": element " << i << " is " << got[i] << ", not " << want[i];
  }
}
inline void expect_close(const Tensor& got, const std::vector<double>& want, double tolerance,
                         const std::string& what) {
  expect_close(values(got), want, tolerance, what);
}

// What the operations compute in.
constexpr DType kFloats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

// What rounding to the dtype may change a value by, relative to it (f16: from 2^-14 on).
inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    default: ADD_FAILURE() << "rounding_of " << name(dtype); return 0;
  }
}

// The value that x is stored as; f64 becomes a 16-bit number by way of f32.
inline double rounded(DType dtype, double x) {
  switch (dtype) {
    case DType::f64: return x;
    case DType::f32: return static_cast<double>(static_cast<float>(x));
    case DType::bf16: return to_f32(to_bf16(static_cast<float>(x)));
    case DType::f16: return to_f32(to_f16(static_cast<float>(x)));
    default: ADD_FAILURE() << "rounded to " << name(dtype); return 0;
  }
}

// What one rounding to the dtype and an f32 (f64) accumulation of moderate length may cost, relative to the
// largest.
inline double tolerance_of(DType dtype) { return dtype == DType::f64 ? 1e-12 : rounding_of(dtype) + 2e-5; }

inline std::string label(cpu::Isa isa, DType dtype) {
  return std::string(cpu::name(isa)) + " " + name(dtype);
}

}  // namespace gangway::ops_testing
