// A materialised model: running it and looking in. Wrapping is in parallelize.cpp.
#include "parallel/model/model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "nn/gradient.h"
#include "parallel/collective_call.h"
#include "parallel/fsdp/replica_check.h"
#include "parallel/model/clip.h"
#include "parallel/whole_gather.h"

namespace gangway {
namespace {

std::shared_ptr<Gangs> or_alone(std::shared_ptr<Gangs> gangs) {
  if (gangs != nullptr) return gangs;
  GangOptions options;
  options.rank = 0;
  options.size = 1;
  return create_gangs(Gang::create(options), MeshOptions{});
}

// Files and look-ups know parameters by their names.
void check_names(const Module& root) {
  std::map<std::string, const Parameter*> seen;
  for (const NamedParameter& p : named_parameters_with_aliases(root)) {
    const auto [at, fresh] = seen.emplace(p.name, p.parameter.get());
    if (!fresh && at->second != p.parameter.get())
      fail(Code::invalid_argument, "two parameters have the name ", p.name, ", one ",
           at->second->shape.text(), ", one ", p.parameter->shape.text(),
           "; names of modules and parameters, joined by dots, must differ");
  }
}

void check_own(const FsdpState& domain, const Parameter& parameter) {
  for (const auto& unit : domain.units())
    for (const NamedParameter& own : unit->parameters())
      if (own.parameter.get() == &parameter) return;
  fail(Code::invalid_argument, "parameter ", parameter.full_name, " is not one of this model");
}

}  // namespace

Model::Model(ModulePtr root, std::shared_ptr<Gangs> gangs)
    : root_(std::move(root)),
      gangs_(or_alone(std::move(gangs))),
      ops_(make_ops(gangs_->root()->owner()->device_ptr())),
      temporaries_(gangs_->root()->device().allocator()),
      domain_(std::make_shared<FsdpState>(gangs_, *ops_)) {
  assign_full_names(*root_);
  check_names(*root_);
}

Model::~Model() = default;

Device& Model::device() { return gangs_->root()->device(); }

Frame& Model::frame(size_t index) {
  while (frames_.size() <= index) frames_.push_back(std::make_unique<Frame>(device().allocator()));
  return *frames_[index];
}

void Model::check_running(const char* call) const {
  if (!materialized_)
    fail(Code::invalid_state, call, ": the model has no values yet; materialize comes first");
}

void Model::check_trainable(const char* call) const {
  check_running(call);
  const Gang& gang = *gangs_->root();
  if (gang.size() > 1 && !gang.has_peers() && gangs_->root()->device().kind() != DeviceKind::meta)
    fail(Code::not_supported, call, ": training over a fake gang of ", gang.size(),
         " ranks: its peers have no data (device meta counts without them)");
}

void Model::check_computes(const char* call) const {
  if (!computes_)
    fail(Code::invalid_state, call,
         ": a model of shard groups computes nothing; the caller does, between unshard and "
         "reshard");
}

// --- running

void Model::order(Stream& stream) { domain_->order(stream); }

void Model::enter(const char* call, Stream& stream) {
  check_running(call);
  order(stream);
}

Context Model::context(Stream& stream) {
  order(stream);
  int index = 0, count = 1;
  gangs_->data_shard(&index, &count);
  return Context{
      .ops = *ops_, .stream = stream, .temporaries = temporaries_, .seed = seed_, .data_index = index};
}

Specs Model::check_forward(const Context& ctx, std::span<const Spec> inputs, const Frame* frame) {
  check_running("forward");
  check_computes("forward");
  if (frame != nullptr) check_trainable("forward");
  Context run = run_of(ctx, frame != nullptr);
  const StackScope scope(temporaries_);
  return root_->check_forward(run, inputs);
}

Values Model::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  enter("forward", ctx.stream);
  if (frame != nullptr) check_trainable("forward");
  if (frame != nullptr) frame->recompute = selective_;
  Context run = run_of(ctx, frame != nullptr);
  return root_->forward(run, inputs, frame);
}

Values Model::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  enter("backward", ctx.stream);
  Context run = run_of(ctx, true);
  return root_->backward(run, dy, frame);
}

Context Model::run_of(const Context& ctx, bool training) const {
  Context run = ctx;
  if (run.caller == nullptr) run.caller = caller_;
  run.training = ctx.training || training;
  return run;
}

void Model::finish_gradients(Stream& stream) {
  enter("finish_gradients", stream);
  domain_->finish_gradients(stream);
}

void Model::set_is_last_backward(bool last) { domain_->set_is_last_backward(last); }
bool Model::is_last_backward() const { return domain_->is_last_backward(); }

void Model::reshard() {
  domain_->reshard_all();
  drop_given_up();
  given_up_ = false;
}

void Model::zero_gradients(Stream& stream) {
  enter("zero_gradients", stream);
  domain_->zero_gradients(stream);
}

void Model::give_up_run(Stream& stream) {
  reshard();
  if (domain_->updating()) domain_->end_update(true, false, stream);
}

std::shared_ptr<const void> Model::await_backward() {
  drop_given_up();
  std::shared_ptr<const void> forward = std::make_shared<char>();
  awaiting_.push_back(forward);
  return forward;
}

double Model::gradient_norm(double p, Stream& stream) {
  enter("gradient_norm", stream);
  domain_->finish_gradients(stream);
  return gangway::gradient_norm(*domain_, *ops_, p, stream);
}

double Model::clip_gradients(double most, double p, Stream& stream) {
  const CollectiveCall call(*gangs_, "clip_grad_norm");
  std::string arguments;
  const auto check_all = [&] {
    Facts facts("clip_grad_norm");
    facts.add("max_norm", most);
    facts.add("p", p);
    arguments = facts.text();
    if (!(std::isfinite(most) && most > 0))
      fail(Code::invalid_argument, "max_norm is ", most, ", not a finite number over 0");
    check_norm_type("p", p);
    check_running("clip_grad_norm");
  };
  call.check(check_all, arguments);
  return call.run([&] {
    const double norm = gradient_norm(p, stream);
    scale_gradients(clip_factor(norm, most), stream);
    return norm;
  });
}

void Model::scale_gradients(double factor, Stream& stream) {
  enter("scale_gradients", stream);
  domain_->finish_gradients(stream);
  for (const NamedParameter& p : listing_.parameters)
    if (p.parameter->shard_grad != nullptr && p.parameter->shard_grad->tensor.count() != 0)
      ops_->scale(p.parameter->shard_grad->tensor, factor, stream);
}

void Model::check_update() const {
  check_running("begin_update");
  if (std::any_of(awaiting_.begin(), awaiting_.end(), [](const auto& forward) { return !forward.expired(); }))
    fail(Code::invalid_state,
         "begin_update: a forward awaits its backward; gw_module_backward or gw_frame_reset comes first");
  domain_->check_update(/*reshards=*/given_up_ || !awaiting_.empty());
}

void Model::drop_given_up() {
  if (std::erase_if(awaiting_, [](const auto& forward) { return forward.expired(); }) != 0) given_up_ = true;
}

void Model::begin_update(Stream& stream) {
  enter("begin_update", stream);
  if (given_up_ || !awaiting_.empty()) reshard();
  domain_->begin_update(stream);
}

void Model::end_update(Stream& stream, bool copies_written) {
  enter("end_update", stream);
  domain_->end_update(!copies_written, true, stream);
}

// --- looking in

const NamedParameter& Model::parameter(const std::string& name) const {
  for (const auto* list : {&listing_.parameters, &listing_.aliases})
    for (const NamedParameter& p : *list)
      if (p.name == name) return p;
  fail(Code::not_found, "the model has no parameter \"", name, "\"");
}

Tensor Model::gather(const Parameter& parameter, Stream& stream) {
  std::optional<WholeGather> gather;
  const CollectiveCall call(*gangs_, "gather");
  call.check([&] {
    check_running("gather");
    check_own(*domain_, parameter);
    gather.emplace(*gangs_, parameter, parameter.shard.dtype());
  });
  return call.run([&] {
    order(stream);
    return gather->run(*ops_, parameter.shard, stream);
  });
}

Tensor Model::gradient(Parameter& parameter, Stream& stream) {
  enter("gradient", stream);
  return local_gradient(parameter, *ops_, stream);
}

Tensor Model::full_gradient(Parameter& parameter, Stream& stream) {
  enter("full_gradient", stream);
  return parameter.grad != nullptr ? parameter.grad->zero_if_unwritten(*ops_, stream) : Tensor();
}

Tensor Model::gather_gradient(const Parameter& parameter, Stream& stream) {
  std::optional<WholeGather> gather;
  const CollectiveCall call(*gangs_, "gather_gradient");
  call.check([&] {
    if (!wants_gradient(parameter))
      fail(Code::invalid_state, "parameter ", parameter.full_name, " is frozen and has no gradient");
    check_own(*domain_, parameter);
    gather.emplace(*gangs_, parameter, parameter.shard_grad->tensor.dtype());
  });
  return call.run([&] {
    order(stream);
    domain_->finish_gradients(stream);
    return gather->run(*ops_, parameter.shard_grad->zero_if_unwritten(*ops_, stream), stream);
  });
}

void Model::assign(Parameter& parameter, const Tensor& values, Stream& stream) {
  check_running("assign");
  const CollectiveCall call(*gangs_, "assign");
  call.check([&] {
    const bool fits = values.shape() == parameter.shape || values.shape() == parameter.local_shape();
    if (!fits || !is_floating(values.dtype()))
      fail(Code::invalid_argument, "assign: parameter ", parameter.full_name, " is ", name(parameter.dtype),
           " ", parameter.shape.text(), ", of which this rank has ", parameter.local_shape().text(),
           ", but the values are ", values.text());
    check_update();
  });
  call.run([&] {
    begin_update(stream);
    const Tensor rows = values.shape() == parameter.shape ? slice(values, parameter.box()) : values;
    if (parameter.shard.count() != 0) ops_->cast(rows, parameter.shard, stream);
    domain_->end_update(true, false, stream);
  });
}

void Model::check_replicas(Stream& stream) {
  CollectiveCall(*gangs_, "check_replicas").check([&] { check_running("check_replicas"); });
  gangway::check_replicas(*domain_, "check_replicas", stream);
}

MemoryUse Model::memory() const {
  MemoryUse use;
  domain_->count(use);
  for (const auto& frame : frames_) {
    use.activations += frame->activation_bytes();
    use.gradients += frame->gradient_bytes();
  }
  use.temporaries = temporaries_.high_water_bytes();
  std::set<const Buffer*> tables;
  for (const NamedModule& named : named_modules(root_))
    for (const Tensor& table : named.module->tables())
      if (table && tables.insert(table.buffer().get()).second) use.temporaries += table.bytes();
  for (const auto& held : optimizers_)
    if (const auto bytes = held.lock()) use.optimizer += *bytes;
  return use;
}

std::shared_ptr<const uint64_t> Model::count_optimizer(uint64_t bytes) {
  std::erase_if(optimizers_, [](const auto& held) { return held.expired(); });
  auto held = std::make_shared<const uint64_t>(bytes);
  optimizers_.push_back(held);
  return held;
}

}  // namespace gangway
