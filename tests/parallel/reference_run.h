// A small model that runs twice from the same initial values: on one device by nn alone, and over a mesh.
// Data-parallel rank i has its own inputs and output gradients in microbatch m. The gradients are sums over
// all of them.
#pragma once

#include "optim/optimizer.h"
#include "parallel/parallel_testing.h"

namespace gangway::test {

struct ReferenceRun {
  ModulePtr (*make)();
  Shape input;  // of one data-parallel rank
  DType dtype = DType::f64;
  uint64_t seed = 5;

  OptimizerOptions adamw() const {
    OptimizerOptions options;
    options.lr = 1e-2;
    options.weight_decay = 0.1;
    return options;
  }

  // The gradients of one step on one device.
  std::map<std::string, Vector> on_one_device(int coordinates, int microbatches = 1) const {
    OneDeviceModel one(*this);
    one.accumulate(coordinates, 0, microbatches);
    std::map<std::string, Vector> out;
    for (const NamedParameter& p : named_parameters(*one.model))
      if (p.parameter->grad)
        out[p.name] = p.parameter->grad->written ? get(p.parameter->grad->tensor)
                                                 : Vector(static_cast<size_t>(p.parameter->shape.count()));
    return out;
  }

  // The values after some steps of AdamW on one device. Step s takes microbatches [s * microbatches, (s + 1)
  // * microbatches).
  std::map<std::string, Vector> trained_on_one_device(int coordinates, int microbatches, int steps) const {
    OneDeviceModel one(*this);
    const auto optimizer = make_optimizer("adamw", named_parameters(*one.model), adamw(), *one.ops);
    for (int step = 0; step < steps; ++step) {
      one.accumulate(coordinates, step * microbatches, microbatches);
      optimizer->step(1, 1, one.device->stream());
      for (const NamedParameter& p : named_parameters(*one.model))
        if (p.parameter->shard_grad != nullptr) p.parameter->shard_grad->written = false;
    }
    std::map<std::string, Vector> out;
    for (const NamedParameter& p : named_parameters(*one.model)) out[p.name] = get(p.parameter->value);
    return out;
  }

  // Runs forward and backward of one microbatch with this rank's inputs.
  void run(Model& model, int microbatch = 0) const {
    int index = 0, count = 0;
    model.gangs().data_shard(&index, &count);
    Context ctx = model.run().context(model.device().stream());
    ctx.microbatch = microbatch;
    Frame& frame = model.frame(0);
    const Tensor x = input_of(model.device(), index, microbatch);
    const Tensor y = model.run().forward(ctx, {&x, 1}, &frame)[0];
    const Tensor dy = gradient_of(frame, y, index, microbatch);
    model.run().backward(ctx, {&dy, 1}, frame);
    frame.reset();
  }

  std::map<std::string, Vector> gradients(Model& model) const {
    Stream& stream = model.device().stream();
    model.run().finish_gradients(stream);
    std::map<std::string, Vector> out;
    for (const NamedParameter& p : model.inspect().parameters())
      if (p.parameter->trainable) out[p.name] = get(model.inspect().gather_gradient(*p.parameter, stream));
    return out;
  }

  Tensor input_of(Device& device, int coordinate, int microbatch) const {
    return make_tensor(device, input, 1000 + 10 * microbatch + coordinate);
  }
  Tensor gradient_of(Frame& frame, const Tensor& y, int coordinate, int microbatch) const {
    const Tensor dy = frame.allocate_gradient(y.dtype(), y.shape());
    put(dy, random_vector(static_cast<size_t>(y.count()),
                          static_cast<uint32_t>(2000 + 10 * microbatch + coordinate)));
    return dy;
  }
  Tensor make_tensor(Device& device, const Shape& shape, int at) const {
    return gangway::test::make(device, dtype, shape,
                               random_vector(static_cast<size_t>(shape.count()), static_cast<uint32_t>(at)));
  }

 private:
  // The same model on one device, by nn alone.
  struct OneDeviceModel {
    explicit OneDeviceModel(const ReferenceRun& reference)
        : reference(reference),
          device(make_device(test_device())),
          ops(make_ops(device)),
          model(reference.make()),
          temporaries(device->allocator()),
          frame(device->allocator()) {
      for (const NamedParameter& p : named_parameters(*model)) p.parameter->dtype = reference.dtype;
      materialize(*model, *ops, reference.seed);
    }
    void accumulate(int coordinates, int first, int microbatches) {
      Context ctx{.ops = *ops, .stream = device->stream(), .temporaries = temporaries, .training = true};
      for (int m = first; m < first + microbatches; ++m)
        for (int i = 0; i < coordinates; ++i) {
          const Tensor x = reference.input_of(*device, i, m);
          const Tensor y = model->forward_one(ctx, x, &frame);
          model->backward_one(ctx, reference.gradient_of(frame, y, i, m), frame);
          frame.run_weight_gradients(ctx);
          frame.reset();
        }
    }

    const ReferenceRun& reference;
    std::shared_ptr<Device> device;
    std::unique_ptr<Ops> ops;
    ModulePtr model;
    Stack temporaries;
    Frame frame;
  };
};

inline void expect_near(const std::map<std::string, Vector>& got, const std::map<std::string, Vector>& want,
                        double tolerance) {
  for (const auto& [name, gradient] : want) {
    if (!got.contains(name)) continue;  // a frozen parameter has no gradient
    EXPECT_LE(normwise(got.at(name), gradient), tolerance) << name;
  }
}

}  // namespace gangway::test
