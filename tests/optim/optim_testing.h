// Parameters with storage of their own, and plain f64 formulas to step beside them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/expect_error.h"
#include "base/philox.h"
#include "optim/optimizer.h"

namespace gangway::test {

struct Cpu {
  std::shared_ptr<Device> device = make_device("cpu");
  std::unique_ptr<Ops> ops = make_ops(device);
  Stream& stream = device->stream();
};

inline double get(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::f64: return t.data<double>()[i];
    case DType::bf16: return to_f32(t.data<bf16_t>()[i]);
    default: return t.data<float>()[i];
  }
}

inline void put(const Tensor& t, int64_t i, double value) {
  switch (t.dtype()) {
    case DType::f64: t.data<double>()[i] = value; return;
    case DType::bf16: t.data<bf16_t>()[i] = to_bf16(static_cast<float>(value)); return;
    default: t.data<float>()[i] = static_cast<float>(value);
  }
}

inline void fill_random(const Tensor& t, const std::string& key, double deviation = 1) {
  for (int64_t i = 0; i < t.count(); ++i)
    put(t, i, philox_normal(philox_key(7, key), static_cast<uint64_t>(i)) * deviation);
}

inline NamedParameter make_parameter(Cpu& cpu, const std::string& name, const Shape& shape,
                                     DType dtype = DType::f32, bool copy = false) {
  auto p = std::make_shared<Parameter>(name.substr(name.rfind('.') + 1), shape, Init::zeros());
  p->dtype = dtype;
  p->full_name = name;
  p->shard = Tensor::allocate(cpu.device->allocator(), dtype, shape);
  p->shard_grad = make_accumulator(Tensor::allocate(cpu.device->allocator(), dtype, shape));
  if (copy) p->shard_copy = Tensor::allocate(cpu.device->allocator(), DType::bf16, shape);
  fill_random(p->shard, name);
  return {name, p};
}

inline void set_gradient(const NamedParameter& named, int step) {
  fill_random(named.parameter->shard_grad->tensor, named.name + " grad " + std::to_string(step));
  named.parameter->shard_grad->written = true;
}

inline std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.count(); ++i) out.push_back(get(t, i));
  return out;
}

}  // namespace gangway::test
