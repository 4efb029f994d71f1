// Tools for tests of sharded models: tensors made from vectors and read into them, the Llama of a reference
// file on a mesh of threads, and one step of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>

#include "gang/agreement.h"
#include "gang/thread_ranks.h"
#include "nn/reference_file.h"
#include "parallel/fsdp/fsdp_state.h"
#include "parallel/model/model.h"
#include "support/host_memory.h"

namespace gangway::test {

using Vector = std::vector<double>;

inline Vector get(const Tensor& t) {
  const HostMemory host(t);
  Vector out(static_cast<size_t>(t.count()));
  for (size_t i = 0; i < out.size(); ++i) {
    if (t.dtype() == DType::f64) out[i] = host.data<double>()[i];
    if (t.dtype() == DType::f32) out[i] = host.data<float>()[i];
    if (t.dtype() == DType::bf16) out[i] = to_f32(host.data<bf16_t>()[i]);
    if (t.dtype() == DType::f16) out[i] = to_f32(host.data<f16_t>()[i]);
  }
  return out;
}

inline void put(const Tensor& t, const Vector& from) {
  HostMemory host(t);
  for (size_t i = 0; i < from.size(); ++i) {
    if (t.dtype() == DType::f64) host.data<double>()[i] = from[i];
    if (t.dtype() == DType::f32) host.data<float>()[i] = static_cast<float>(from[i]);
    if (t.dtype() == DType::bf16) host.data<bf16_t>()[i] = to_bf16(static_cast<float>(from[i]));
    if (t.dtype() == DType::f16) host.data<f16_t>()[i] = to_f16(static_cast<float>(from[i]));
  }
  host.write();
}

inline Tensor make(Device& device, DType dtype, const Shape& shape, const Vector& from) {
  Tensor t = Tensor::allocate(device.allocator(), dtype, shape);
  put(t, from);
  return t;
}

inline Tensor make_ids(Device& device, const Shape& shape, const std::vector<int64_t>& from) {
  Tensor t = Tensor::allocate(device.allocator(), DType::i64, shape);
  HostMemory host(t);
  std::copy(from.begin(), from.end(), host.data<int64_t>());
  host.write();
  return t;
}

inline Vector random_vector(size_t count, uint32_t seed, double deviation = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> values(0, deviation);
  Vector x(count);
  for (double& e : x) e = values(engine);
  return x;
}

inline double normwise(const Vector& got, const Vector& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size() && i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return size == 0 ? std::sqrt(error) : std::sqrt(error / size);
}

template <typename F>
Error expect_refusal(Code code, const F& f, std::initializer_list<const char*> parts = {}) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), std::string(name(code))) << error.message();
    for (const char* part : parts)
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message() << " lacks " << part;
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(code, "");
}

inline std::shared_ptr<Gangs> mesh_of(Gang& root, int replicas = 1) {
  MeshOptions mesh;
  mesh.dp_replicate = replicas;
  return create_gangs(root.shared_from_this(), mesh);
}

// The objects that a module needs to run on one rank.
struct ModuleRig {
  explicit ModuleRig(Gang& gang)
      : gang(gang),
        ops(make_ops(gang.owner()->device_ptr())),
        temporaries(gang.device().allocator()),
        frame(gang.device().allocator()),
        ctx{.ops = *ops, .stream = gang.device().stream(), .temporaries = temporaries} {}
  Gang& gang;
  std::unique_ptr<Ops> ops;
  Stack temporaries;
  Frame frame;
  Context ctx;
};

// The results of a step, which are equal on all ranks.
struct StepValues {
  double loss = 0;  // mean over the whole batch
  std::map<std::string, Vector> gradients;
  double norm = 0;
};

inline void set_initial(Model& model, const Reference& reference) {
  for (const NamedParameter& p : model.inspect().parameters()) {
    const Tensor whole =
        make(model.device(), DType::f64, p.parameter->shape, reference.values("init." + p.name));
    model.inspect().assign(*p.parameter, whole, model.device().stream());
  }
}

// The rows of a batch that belong to this data-parallel rank: [first, last).
inline std::pair<int64_t, int64_t> data_rows(const Gangs& gangs, int64_t batch) {
  int index = 0, count = 1;
  gangs.data_shard(&index, &count);
  const std::vector<int64_t> bounds = balanced_bounds(batch, count);
  return {bounds[static_cast<size_t>(index)], bounds[static_cast<size_t>(index) + 1]};
}

// Runs forward and backward of step 0 in `microbatches`. Returns the loss of this rank's rows. The gradients
// stay multiplied by the loss scale.
inline double run_microbatches(Model& model, const Reference& reference, int microbatches = 1,
                               double loss_scale = 1) {
  Stream& stream = model.device().stream();
  const auto [first, last] = data_rows(model.gangs(), reference.batch());
  const std::vector<int64_t> cuts = balanced_bounds(last - first, microbatches);
  Context ctx = model.run().context(stream);
  ctx.loss_scale = loss_scale / static_cast<double>(reference.weight());
  double sum = 0;
  for (int m = 0; m < microbatches; ++m) {
    const int64_t from = first + cuts[static_cast<size_t>(m)], to = first + cuts[static_cast<size_t>(m) + 1];
    const Shape shape{to - from, reference.sequence()};
    const Tensor inputs[] = {make_ids(model.device(), shape, reference.rows("tokens", from, to)),
                             make_ids(model.device(), shape, reference.rows("labels", from, to))};
    ctx.microbatch = m;
    Frame& frame = model.frame(0);
    model.run().set_is_last_backward(m + 1 == microbatches);
    sum += get(model.run().forward(ctx, inputs, &frame)[0])[0];
    model.run().backward(ctx, {}, frame);
    frame.reset();
  }
  model.run().finish_gradients(stream);
  return sum;
}

// As above, and gathers all results. Leaves the gradients in place.
inline StepValues run_step(Model& model, const Reference& reference, int microbatches = 1,
                           double loss_scale = 1) {
  Stream& stream = model.device().stream();
  const double sum = run_microbatches(model, reference, microbatches, loss_scale);
  StepValues values;
  values.loss = model.gangs().loss_gang()->agreement().all_sum(Channel::user, sum) /
                static_cast<double>(reference.weight());
  for (const NamedParameter& p : model.inspect().parameters())
    if (p.parameter->trainable)
      values.gradients[p.name] = get(model.inspect().gather_gradient(*p.parameter, stream));
  for (auto& [name, gradient] : values.gradients)
    for (double& x : gradient) x /= loss_scale;
  values.norm = model.run().gradient_norm(2, stream) / loss_scale;
  return values;
}

inline void expect_reference(const StepValues& values, const Reference& reference, double tolerance) {
  const double loss = reference.at("loss").values[0];
  EXPECT_NEAR(values.loss / loss, 1, tolerance);
  EXPECT_NEAR(values.norm / reference.at("adamw.grad_norms").values[0], 1, tolerance);
  for (const auto& [name, gradient] : values.gradients)
    EXPECT_LE(normwise(gradient, reference.at("grad." + name).values), tolerance) << name;
}

inline std::unique_ptr<Model> make_model(const Reference& reference, std::shared_ptr<Gangs> gangs,
                                         const ParallelOptions& options, bool regions = true) {
  auto model = std::make_unique<Model>(make_decoder(reference.config), std::move(gangs));
  model->fsdp().use_regions(regions);
  model->build().parallelize(options);
  set_initial(*model, reference);
  return model;
}

}  // namespace gangway::test
