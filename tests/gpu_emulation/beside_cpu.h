// The same calls on the software GPU and on a CPU, and their results beside each other. The CPU's operations
// are the reference; their own tests compare them with plain formulas and finite differences.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "gpu_emulation/cuda_ops_testing.h"
#include "ops/fp8.h"

namespace gangway::ops_testing {

// What a case makes its tensors with, on one of the devices. `type` is the dtype of the case, and `wide` that
// of its sums. On the CPU both may be f64, for the same numbers.
class Call {
 public:
  struct Result {
    std::string name;
    Tensor tensor;
    double tolerance;  // 0: that of the dtype
  };

  // packs: whether tensors begin at multiples of 16 bytes, as accesses of 16 bytes need it. Otherwise they
  // begin one element later, and so kernels for single elements run.
  Call(Bench& on, DType dtype, bool exact, bool with_packs)
      : bench(on),
        packs(with_packs),
        type(exact ? DType::f64 : dtype),
        wide(accumulator_of(type)),
        rounds_to_(dtype) {}

  Bench& bench;
  const bool packs;
  const DType type, wide;

  Ops& ops() const { return *bench.ops; }
  Stream& stream() const { return bench.stream(); }

  Tensor empty(DType dtype, const Shape& shape) const {
    if (packs) return bench.empty(dtype, shape);
    const int64_t count = shape.count();
    return bench.empty(dtype, {count + 1}).slice(0, 1, count + 1).reshape(shape);
  }
  Tensor of(DType dtype, const Shape& shape, const std::vector<double>& from) const {
    const Tensor t = empty(dtype, shape);
    assign(t, from);
    return t;
  }
  // Normal numbers that the case's dtype, or that of its sums, can store.
  Tensor random(const Shape& shape, double deviation = 1) {
    return of(type, shape, numbers(rounds_to_, shape, deviation));
  }
  Tensor random_wide(const Shape& shape, double deviation = 1) {
    return of(wide, shape, numbers(accumulator_of(rounds_to_), shape, deviation));
  }
  Tensor random(DType dtype, const Shape& shape, double deviation = 1) {
    return of(dtype, shape, numbers(dtype, shape, deviation));
  }
  Tensor ids(const std::vector<int64_t>& from) const { return ids_tensor(bench, from); }

  // Compares this tensor after the calls. It may be an argument that they change.
  Tensor result(const std::string& name, const Tensor& tensor, double tolerance = 0) {
    results.push_back({name, tensor, tolerance});
    return tensor;
  }
  Tensor result(const std::string& name, const Shape& shape, double tolerance = 0) {
    return result(name, random(shape), tolerance);
  }
  Tensor result_wide(const std::string& name, const Shape& shape, double tolerance = 0) {
    return result(name, random_wide(shape), tolerance);
  }
  Tensor result(DType dtype, const std::string& name, const Shape& shape, double tolerance = 0) {
    return result(name, random(dtype, shape), tolerance);
  }

  std::vector<Result> results;

 private:
  std::vector<double> numbers(DType dtype, const Shape& shape, double deviation) {
    std::vector<double> all = random_values(static_cast<size_t>(shape.count()), ++seed_, deviation);
    for (double& x : all) x = rounded(dtype, x);
    return all;
  }

  const DType rounds_to_;
  uint32_t seed_ = 0;
};

enum class Reference { in_f64, of_the_same_types };

class BesideCpu : public OnSoftwareGpu {
 protected:
  static void SetUpTestSuite() {
    OnSoftwareGpu::SetUpTestSuite();
    setenv("GANGWAY_TEST_DEVICE", "cpu", 1);
    cpu_ = std::make_unique<Bench>();
    setenv("GANGWAY_TEST_DEVICE", "cuda", 1);
    gpu_ = std::make_unique<Bench>();
  }
  static void TearDownTestSuite() {
    gpu_.reset();
    cpu_.reset();
  }

  // Runs the calls of a case on both devices, with tensors that take packs and with ones that do not.
  static void expect_the_same(const std::string& what, DType dtype, Reference reference,
                              const std::function<void(Call&)>& calls,
                              std::initializer_list<bool> with_packs = {true, false}) {
    for (const bool packs : with_packs) {
      Call want(*cpu_, dtype, reference == Reference::in_f64, packs), got(*gpu_, dtype, false, packs);
      calls(want);
      calls(got);
      got.stream().synchronize();
      ASSERT_EQ(gpu_emulation::report(), "");
      for (size_t i = 0; i < got.results.size(); ++i) {
        const auto& [name, tensor, tolerance] = got.results[i];
        const std::string text = what + ", " + gangway::name(dtype) + (packs ? ", packs: " : ": ") + name;
        if (item_bytes(tensor.dtype()) == 1) {
          EXPECT_EQ(test::copy_out<uint8_t>(tensor), test::copy_out<uint8_t>(want.results[i].tensor)) << text;
          continue;
        }
        expect_close(values(tensor), values(want.results[i].tensor),
                     tolerance > 0 ? tolerance : tolerance_for(tensor.dtype(), dtype), text, 0.2);
      }
    }
  }
  static void expect_the_same(const std::string& what, Reference reference,
                              const std::function<void(Call&)>& calls) {
    for (const DType dtype : kFloats) expect_the_same(what, dtype, reference, calls);
  }

 private:
  static double tolerance_for(DType of_result, DType of_case) {
    if (of_case == DType::f64) return 1e-12;
    return of_result == DType::f64 || of_result == DType::i64 ? 2e-5 : 2 * rounding_of(of_result) + 2e-5;
  }

  static inline std::unique_ptr<Bench> cpu_, gpu_;
};

}  // namespace gangway::ops_testing
