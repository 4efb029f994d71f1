// Tools for tests of layers: a rig (device, operations, temporaries), random tensors, gradients by central
// differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "nn/layers.h"
#include "nn/plain_ops.h"

namespace gangway::nn_testing {

struct Rig {
  explicit Rig(const std::string& device_name = test::test_device())
      : device(make_device(device_name)),
        ops(device_name == "cpu" ? std::unique_ptr<Ops>(std::make_unique<PlainOps>(device))
                                 : make_ops(device)),
        temporaries(device->allocator()) {}
  explicit Rig(std::unique_ptr<Ops> (*make)(const std::shared_ptr<Device>&))
      : device(make_device(test::test_device())), ops(make(device)), temporaries(device->allocator()) {}

  Context context() { return {.ops = *ops, .stream = device->stream(), .temporaries = temporaries}; }
  Tensor empty(DType dtype, const Shape& shape) {
    return Tensor::allocate(device->allocator(), dtype, shape);
  }
  Tensor tensor(DType dtype, const Shape& shape, const Vector& from) {
    const Tensor t = empty(dtype, shape);
    put(t, from);
    return t;
  }
  Tensor normal(const Shape& shape, uint32_t seed, DType dtype = DType::f64, double deviation = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> values(0, deviation);
    Vector x(static_cast<size_t>(shape.count()));
    for (double& e : x) e = values(engine);
    return tensor(dtype, shape, x);
  }
  Tensor ids(const Shape& shape, uint32_t seed, int64_t below) {
    std::mt19937 engine(seed);
    Vector x(static_cast<size_t>(shape.count()));
    for (double& e : x) e = static_cast<double>(engine() % static_cast<uint32_t>(below));
    return tensor(DType::i64, shape, x);
  }
  Tensor copy(const Tensor& from) { return tensor(from.dtype(), from.shape(), get(from)); }
  Values copies(const Values& from) {
    Values out;
    for (const Tensor& t : from) out.push_back(copy(t));
    return out;
  }
  // Storage in `dtype` with values of a size that makes every gradient count.
  void materialize(Module& module, DType dtype, double deviation = 0.5) {
    for (const NamedParameter& p : named_parameters(module)) p.parameter->dtype = dtype;
    gangway::materialize(module, *ops, 7);
    uint32_t seed = 100;
    for (const NamedParameter& p : named_parameters(module))
      put(p.parameter->value, get(normal(p.parameter->shape, seed++, DType::f64, deviation)));
  }

  std::shared_ptr<Device> device;
  std::unique_ptr<Ops> ops;
  Stack temporaries;
};

inline double normwise(const Vector& got, const Vector& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return size == 0 ? std::sqrt(error) : std::sqrt(error / size);
}

// d f / d x by central differences of fourth order (Richardson's of steps h and 2 h); `f` reads `x` through
// its tensor.
template <typename F>
Vector numeric_gradient(const Tensor& x, const F& f) {
  constexpr double kStep = 1e-3;
  const Vector start = get(x);
  Vector gradient(start.size());
  for (size_t i = 0; i < start.size(); ++i) {
    const auto at = [&](double step) {
      Vector moved = start;
      moved[i] += step;
      put(x, moved);
      return f();
    };
    gradient[i] = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
  }
  put(x, start);
  return gradient;
}

// Compares the gradients of sum_i <c_i, output_i>, c random, with central differences: inputs and parameters.
inline void expect_gradients(Rig& rig, Module& module, const Values& inputs,
                             Recompute recompute = Recompute::none) {
  Context ctx = rig.context();
  ctx.training = true;
  Values weights;
  const auto objective = [&] {
    StackScope scope(rig.temporaries);
    Context plain = rig.context();
    plain.training = true;
    const Values outputs = module.forward(plain, rig.copies(inputs), nullptr);
    double sum = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (weights.size() <= i)
        weights.push_back(rig.normal(outputs[i].shape(), 900 + static_cast<uint32_t>(i)));
      const Vector y = get(outputs[i]), c = get(weights[i]);
      for (size_t j = 0; j < y.size(); ++j) sum += c[j] * y[j];
    }
    return sum;
  };
  objective();
  Frame frame(rig.device->allocator());
  frame.recompute = recompute;
  const Values given = rig.copies(inputs);
  {
    StackScope scope(rig.temporaries);
    module.forward(ctx, given, &frame);
  }
  Values dy;
  for (const Tensor& c : weights) {
    dy.push_back(frame.allocate_gradient(c.dtype(), c.shape()));
    put(dy.back(), get(c));
  }
  const Values dx = module.backward(ctx, dy, frame);
  frame.run_weight_gradients(ctx);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() == DType::i64) {
      EXPECT_FALSE(dx.at(i)) << "input " << i;
      continue;
    }
    EXPECT_LE(normwise(get(dx.at(i)), numeric_gradient(inputs[i], objective)), 1e-7) << "input " << i;
  }
  for (const NamedParameter& p : named_parameters(module)) {
    ASSERT_TRUE(p.parameter->grad->written) << p.name;
    EXPECT_LE(normwise(get(p.parameter->grad->tensor), numeric_gradient(p.parameter->value, objective)), 1e-7)
        << p.name;
  }
}

template <typename F>
Error expect_error(Code code, const F& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), std::string(name(code))) << error.message();
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(code, "");
}

inline void expect_text(const Error& error, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message() << " lacks " << part;
}

}  // namespace gangway::nn_testing
