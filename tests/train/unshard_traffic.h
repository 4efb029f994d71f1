// Checks that unsharding moves no bytes on one host: ranks read their peers' values in place, before a step
// and after it.
#pragma once

#include "parallel/fsdp/fsdp_state.h"
#include "train/train_testing.h"

namespace gangway::test {

struct TrafficCase {
  int ranks, replicas;
  Strategy strategy;
  DType param;  // bf16: copies beside f32 masters that are private to a rank
  std::string describe() const {
    return text(ranks, " ranks, ", replicas, " replicas, strategy ", static_cast<int>(strategy), ", param ",
                name(param));
  }
};

inline std::vector<TrafficCase> traffic_cases(int ranks) {
  std::vector<TrafficCase> cases;
  for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op})
    for (const DType param : {DType{}, DType::bf16})
      for (int replicas = 1; replicas <= 2; ++replicas)
        if (replicas == 1 || ranks == 4) cases.push_back({ranks, replicas, strategy, param});
  return cases;
}

inline Traffic sum(const Traffic& a, const Traffic& b) {
  return {a.calls + b.calls, a.bytes_moved + b.bytes_moved, a.bytes_staged + b.bytes_staged};
}

// Expects every parameter group to show the present values of their owners, in the compute dtype.
inline void expect_present_values(Model& model) {
  Stream& stream = model.device().stream();
  for (const auto& group : model.fsdp().groups()) {
    std::vector<Tensor> want;
    for (const NamedParameter& p : group->parameters())
      want.push_back(model.inspect().gather(*p.parameter, stream));
    group->unshard(stream);
    for (size_t i = 0; i < want.size(); ++i) {
      const Tensor& value = group->parameters()[i].parameter->value;
      const Tensor rounded = Tensor::allocate(model.device().allocator(), value.dtype(), value.shape());
      model.ops().cast(want[i], rounded, stream);
      EXPECT_EQ(std::memcmp(value.raw(), rounded.raw(), value.bytes()), 0) << group->parameters()[i].name;
    }
    group->reshard();
  }
}

inline void expect_unshard_moves_nothing(Gang& root, const Reference& reference, const TrafficCase& c) {
  ParallelOptions parallel_options = parallel(c.strategy, DType::f32);
  parallel_options.shard.param_dtype = c.param;
  const auto gangs = make_gangs(root, c.replicas);
  const auto model = make_model(make_decoder(reference.config), gangs, parallel_options);
  assign_initial(*model, reference);
  const auto optimizer =
      make_optimizer("adamw", model->inspect().parameters(), optimizer_of(reference), model->ops());
  Stream& stream = model->device().stream();
  const Batch batch = own_rows(*model, reference, 0);
  const Tensor values[] = {batch.inputs[0], batch.targets[0]};
  const auto traffic = [&] { return sum(gangs->fsdp_gang()->traffic(), gangs->rdp()->traffic()); };
  for (int step = 0; step < 2; ++step) {
    Context ctx = model->run().context(stream);
    ctx.loss_scale = 0.01;
    const Traffic before = traffic();
    model->run().forward(ctx, values, nullptr);
    model->temporaries().reset();
    model->run().forward(ctx, values, &model->frame(0));
    const Traffic after = traffic();
    EXPECT_EQ(after.calls, before.calls) << c.describe();
    EXPECT_EQ(after.bytes_moved, before.bytes_moved) << c.describe();

    model->run().backward(ctx, {}, model->frame(0));
    model->frame(0).reset();
    model->run().finish_gradients(stream);
    // The bytes of this rank's rows of the gradients. Each peer of the shard gang computes addends of the
    // same rows.
    uint64_t own = 0;
    for (const NamedParameter& p : model->inspect().parameters())
      own += p.parameter->shard_grad->tensor.bytes();
    const auto peers = static_cast<uint64_t>(gangs->fsdp_gang()->size() - 1);
    EXPECT_GE(traffic().bytes_moved, after.bytes_moved + own * peers) << c.describe();
    EXPECT_EQ(traffic().bytes_staged, before.bytes_staged) << c.describe();

    StepOptions options;
    options.max_grad_norm = 1;
    optimizer_step(*model, *optimizer, options, stream);
    expect_present_values(*model);
  }
}

}  // namespace gangway::test
