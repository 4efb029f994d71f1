#include "parallel/model/inspector.h"

#include <optional>
#include <set>

#include "nn/gradient.h"
#include "parallel/activation_offload.h"
#include "parallel/collective_call.h"
#include "parallel/fsdp/replica_check.h"
#include "parallel/full_tensor_gather.h"
#include "parallel/pipeline/runtime.h"

namespace gangway {
namespace {

void check_own(const std::vector<NamedParameter>& parameters, const Parameter& parameter) {
  for (const NamedParameter& own : parameters)
    if (own.parameter.get() == &parameter) return;
  fail(Code::invalid_argument, "parameter ", parameter.full_name, " is not one of this model");
}

}  // namespace

std::vector<NamedParameter> ModelInspector::names() const {
  std::vector<NamedParameter> all = parts_.parameters;
  all.insert(all.end(), parts_.aliases.begin(), parts_.aliases.end());
  return all;
}

std::vector<NamedParameter> ModelInspector::saved() const {
  return parts_.computes ? parts_.parameters : names();
}

const NamedParameter& ModelInspector::parameter(const std::string& name) const {
  for (const auto* list : {&parts_.parameters, &parts_.aliases})
    for (const NamedParameter& p : *list)
      if (p.name == name) return p;
  fail(Code::not_found, "the model has no parameter \"", name, "\"");
}

Tensor ModelInspector::gather(const Parameter& parameter, Stream& stream) {
  std::optional<FullTensorGather> gather;
  const CollectiveCall call(*parts_.gangs, "gather");
  call.check([&] {
    parts_.check_materialized("gather");
    check_own(parts_.parameters, parameter);
    gather.emplace(*parts_.gangs, parameter, parameter.shard.dtype());
  });
  return call.run([&] {
    runner_.order(stream);
    return gather->run(*parts_.ops, parameter.shard, stream);
  });
}

Tensor ModelInspector::gradient(Parameter& parameter, Stream& stream) {
  parts_.check_materialized("gradient");
  runner_.order(stream);
  return local_gradient(parameter, *parts_.ops, stream);
}

Tensor ModelInspector::full_gradient(Parameter& parameter, Stream& stream) {
  parts_.check_materialized("full_gradient");
  runner_.order(stream);
  return parameter.grad != nullptr ? parameter.grad->zero_if_unwritten(*parts_.ops, stream) : Tensor();
}

Tensor ModelInspector::gather_gradient(const Parameter& parameter, Stream& stream) {
  std::optional<FullTensorGather> gather;
  const CollectiveCall call(*parts_.gangs, "gather_gradient");
  call.check([&] {
    parts_.check_materialized("gather_gradient");
    if (!wants_gradient(parameter))
      fail(Code::invalid_state, "parameter ", parameter.full_name, " is frozen and has no gradient");
    check_own(parts_.parameters, parameter);
    gather.emplace(*parts_.gangs, parameter, parameter.shard_grad->tensor.dtype());
  });
  return call.run([&] {
    runner_.order(stream);
    parts_.fsdp->finish_gradients(stream);
    return gather->run(*parts_.ops, parameter.shard_grad->zero_if_unwritten(*parts_.ops, stream), stream);
  });
}

void ModelInspector::assign(Parameter& parameter, const Tensor& values, Stream& stream) {
  const CollectiveCall call(*parts_.gangs, "assign");
  call.check([&] {
    parts_.check_materialized("assign");
    const bool fits = values.shape() == parameter.shape || values.shape() == parameter.local_shape();
    if (!fits || !is_floating(values.dtype()))
      fail(Code::invalid_argument, "assign: parameter ", parameter.full_name, " is ", name(parameter.dtype),
           " ", parameter.shape.text(), ", of which this rank has ", parameter.local_shape().text(),
           ", but the values are ", values.text());
    runner_.check_update();
  });
  call.run([&] {
    runner_.begin_update(stream);
    const Tensor rows = values.shape() == parameter.shape ? slice(values, parameter.box()) : values;
    if (parameter.shard.count() != 0) parts_.ops->cast(rows, parameter.shard, stream);
    parts_.fsdp->end_update(true, false, stream);
  });
}

const std::vector<double>& ModelInspector::gradient_norms() const {
  if (!gradient_norms_)
    fail(Code::invalid_state,
         "no step has computed gradient norms; set gradient_norms in the step's options");
  return *gradient_norms_;
}

void ModelInspector::check_replicas(Stream& stream) {
  CollectiveCall(*parts_.gangs, "check_replicas").check([&] {
    parts_.check_materialized("check_replicas");
    runner_.order(stream);
  });
  gangway::check_replicas(*parts_.fsdp, "check_replicas", stream);
}

MemoryUse ModelInspector::memory() const {
  MemoryUse use;
  parts_.fsdp->count(use);
  for (const auto& frame : parts_.frames) {
    use.activations += frame->activation_bytes();
    use.gradients += frame->gradient_bytes();
  }
  if (parts_.offload != nullptr) {
    use.activations += parts_.offload->device_bytes();
    use.host += parts_.offload->host_bytes();
  }
  use.temporaries = parts_.temporaries.high_water_bytes();
  if (parts_.pipeline != nullptr) use.temporaries += parts_.pipeline->message_bytes();
  std::set<const Buffer*> tables;
  const auto count_tables = [&](const std::vector<Tensor>& made) {
    for (const Tensor& table : made)
      if (table && tables.insert(table.buffer().get()).second) use.temporaries += table.bytes();
  };
  for (const NamedModule& named : named_modules(parts_.root)) count_tables(named.module->tables());
  count_tables(runner_.documents().made());
  for (const auto& held : optimizers_)
    if (const auto bytes = held.lock()) {
      use.optimizer += bytes->device;
      use.host += bytes->host;
    }
  return use;
}

std::shared_ptr<const ModelInspector::OptimizerBytes> ModelInspector::count_optimizer(uint64_t device,
                                                                                      uint64_t host) {
  std::erase_if(optimizers_, [](const auto& held) { return held.expired(); });
  auto held = std::make_shared<const OptimizerBytes>(OptimizerBytes{device, host});
  optimizers_.push_back(held);
  return held;
}

}  // namespace gangway
