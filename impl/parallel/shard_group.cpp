#include "parallel/shard_group.h"

#include <set>

#include "parallel/collective_call.h"
#include "parallel/fsdp/fsdp_state.h"

namespace gangway {
namespace {

// A module that holds the parameters of a group and refuses to compute.
class ParameterModule final : public Module {
 public:
  explicit ParameterModule(const std::vector<GroupParameter>& parameters) {
    for (const GroupParameter& p : parameters) {
      const ParameterPtr made = add_parameter(p.name, p.shape.rank() == 0 ? Shape{1} : p.shape, p.init);
      made->dtype = p.dtype;
      made->trainable = p.trainable && !p.is_buffer;
      if (p.is_buffer) made->kind = Parameter::Kind::buffer;
    }
  }

  const char* kind() const override { return "ShardGroup"; }
  Values forward(Context&, std::span<const Tensor>, Frame*) override {
    fail(Code::invalid_state, "a shard group computes nothing; the caller does, between unshard and reshard");
  }
  Values backward(Context&, std::span<const Tensor>, Frame&) override {
    fail(Code::invalid_state, "a shard group computes nothing; the caller does, between unshard and reshard");
  }
};

void check_axes(const Gangs& gangs) {
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::pp})
    if (const int degree = gangs.mesh().degree(axis); degree > 1)
      fail(Code::not_supported, name(axis), " is ", degree,
           ", but a shard group is over dp_replicate and dp_shard only");
}

void check_parameters(const std::string& group, const std::vector<GroupParameter>& parameters,
                      const ShardOptions& options) {
  if (parameters.empty()) fail(Code::invalid_argument, "shard group ", group, ": has no parameters");
  std::set<std::string> names;
  const auto check_name = [&](const std::string& name) {
    if (name.empty() || !names.insert(name).second)
      fail(Code::invalid_argument, "shard group ", group, ": parameter name \"", name,
           name.empty() ? "\" is empty" : "\" stands twice");
  };
  for (const GroupParameter& p : parameters) {
    check_name(p.name);
    for (const std::string& alias : p.aliases) check_name(alias);
    if (p.dtype != DType::f32 && p.dtype != DType::f64)
      fail(Code::invalid_argument, "shard group ", group, ": parameter ", p.name, " is ", name(p.dtype),
           "; its master must be f32 or f64");
    check(options, p.dtype);
  }
}

std::string signature_of(const std::string& group, const std::vector<GroupParameter>& parameters,
                         const ShardOptions& options, uint64_t seed) {
  CallSignature signature("make_shard_group");
  signature.add("name", group);
  signature.add("seed", seed);
  add_to_signature(options, signature);
  const auto module = std::make_shared<ParameterModule>(parameters);
  assign_full_names(*module);
  add_to_signature(module, signature);
  for (const GroupParameter& p : parameters)
    for (const std::string& alias : p.aliases) signature.add("an alias of " + p.name, alias);
  return signature.text();
}

class Group final : public ShardGroup {
 public:
  Group(std::shared_ptr<Gangs> gangs, const std::string& name, const std::vector<GroupParameter>& parameters,
        const ShardOptions& options)
      : gangs_(std::move(gangs)),
        name_(name),
        module_(std::make_shared<ParameterModule>(parameters)),
        ops_(make_ops(gangs_->root()->owner()->device_ptr())),
        state_(gangs_, *ops_) {
    const std::string prefix = name_.empty() ? "" : name_ + ".";
    for (size_t i = 0; i < parameters.size(); ++i) {
      const ParameterPtr& p = module_->parameters()[i];
      p->full_name = prefix + p->name;
      named_.push_back({p->full_name, p});
      for (const std::string& alias : parameters[i].aliases) aliases_.push_back({prefix + alias, p});
    }
    group_ = std::make_shared<ParameterGroup>(name_, named_, options, GroupRole::external, nullptr);
    state_.add(group_);
  }

  void materialize(uint64_t seed) { state_.materialize(seed, DType{}); }

  const std::string& name() const override { return name_; }
  const std::vector<NamedParameter>& parameters() const override { return named_; }
  const std::vector<NamedParameter>& aliases() const override { return aliases_; }
  Device& device() override { return ops_->device(); }
  const GangPtr& gang() override { return gangs_->root(); }
  Gangs& gangs() override { return *gangs_; }
  const std::shared_ptr<Gangs>& held_gangs() const { return gangs_; }
  const ModulePtr& module() const { return module_; }
  const FsdpState& state() const { return state_; }

  void unshard(std::span<const Tensor> into, Stream& stream) override {
    check_targets(into);
    run("unshard", [&] {
      state_.order(stream);
      group_->unshard(stream);
      for (size_t i = 0; i < into.size(); ++i)
        if (into[i].count() != 0) ops_->cast(named_[i].parameter->value, into[i], stream);
    });
  }

  WorkPtr unshard_async(Stream& stream) override {
    state_.order(stream);
    group_->values().prefetch(stream);
    const WorkPtr gathering = group_->values().gathering();
    return gathering != nullptr ? gathering : finished_work();
  }

  // The caller reads the full values on `stream`. Whoever uses their memory next is ordered after that.
  void reshard(Stream& stream) override {
    state_.order(stream);
    group_->reshard();
  }
  bool unsharded() const override { return group_->unsharded(); }

  Tensor view(size_t parameter, Part part) override {
    Parameter& p = at(parameter);
    Stream& stream = ops_->device().stream();
    state_.order(stream);
    if ((part == Part::full_value || part == Part::full_gradient) && !group_->unsharded())
      fail(Code::invalid_state, "parameter ", p.full_name, ": the group is sharded; unshard comes first");
    switch (part) {
      case Part::value: return p.shard;
      case Part::gradient: return local_gradient(p, *ops_, stream);
      case Part::full_value: return p.value;
      case Part::full_gradient: return full_gradient(p, stream);
    }
    fail(Code::invalid_argument, "part ", static_cast<int>(part), " is unknown (0 to 3)");
  }

  void add_gradient(size_t parameter, const Tensor& gradient, Stream& stream) override {
    Parameter& p = at(parameter);
    check_trainable(p);
    if (!is_floating(gradient.dtype()) || !(gradient.shape() == p.shape) || !gradient.contiguous())
      fail(Code::invalid_argument, "parameter ", p.full_name, " is ", p.shape.text(),
           ", but the gradient is ", gradient.text(),
           "; wanted are the same shape, row-major, f64, f32, bf16 or f16");
    state_.order(stream);
    const Tensor full = full_gradient(p, stream);
    if (full.count() != 0) ops_->add(gradient, 1, full, stream);
  }

  void reduce(Stream& stream) override {
    run("reduce_gradients", [&] {
      state_.order(stream);
      group_->reduce(stream);
    });
  }

  // Refusals are agreed, because the peers would wait in the version gate for a rank that refused alone.
  void begin_update(Stream& stream) override {
    const CollectiveCall call(*gangs_, "begin_update");
    call.check([&] {
      state_.check_update();
      state_.check_reduced("begin_update");
    });
    call.run([&] {
      state_.order(stream);
      state_.begin_update(stream);
    });
  }
  void end_update(Stream& stream) override {
    state_.order(stream);
    state_.end_update(true, true, stream);
  }

 private:
  Parameter& at(size_t i) const {
    if (i >= named_.size())
      fail(Code::invalid_argument, "shard group ", name_, ": parameter ", i, " is outside [0, ",
           named_.size(), ")");
    return *named_[i].parameter;
  }

  static void check_trainable(const Parameter& p) {
    if (!p.trainable || p.shard_grad == nullptr)
      fail(Code::invalid_state, "parameter ", p.full_name, " is frozen and has no gradient");
  }

  void check_targets(std::span<const Tensor> into) const {
    if (into.empty()) return;
    if (into.size() != named_.size())
      fail(Code::invalid_argument, "shard group ", name_, ": unshard into ", into.size(),
           " tensors, but it has ", named_.size(), " parameters");
    for (size_t i = 0; i < into.size(); ++i)
      if (!(into[i].shape() == named_[i].parameter->shape) || !is_floating(into[i].dtype()))
        fail(Code::invalid_argument, "parameter ", named_[i].name, " is ", named_[i].parameter->shape.text(),
             ", but the memory to unshard into is ", into[i].text());
  }

  // A failure breaks only the gangs of this group.
  template <typename Body>
  void run(const char* name, Body&& body) {
    const GroupContext& place = group_->place();
    const GangPtr gangs[] = {
        place.shards != nullptr && place.shards->size() > 1 ? place.shards : place.replicas, place.replicas};
    CollectiveCall(gangs, name).run(body);
  }

  // Returns the full gradient, which is zero until something was added.
  Tensor full_gradient(Parameter& p, Stream& stream) {
    check_trainable(p);
    run("full_gradient", [&] { group_->gradients().acquire(stream); });
    return p.grad->zero_if_unwritten(*ops_, stream);
  }

  std::shared_ptr<Gangs> gangs_;
  const std::string name_;
  ModulePtr module_;
  std::unique_ptr<Ops> ops_;
  FsdpState state_;
  std::shared_ptr<ParameterGroup> group_;
  std::vector<NamedParameter> named_, aliases_;
};

const Group& as_group(const std::shared_ptr<ShardGroup>& group) {
  const auto* own = dynamic_cast<const Group*>(group.get());
  if (own == nullptr) fail(Code::invalid_argument, "model_from_groups: a group is absent");
  return *own;
}

// The root module of model_from_groups. It keeps the groups alive.
class Groups final : public Module {
 public:
  explicit Groups(std::vector<std::shared_ptr<ShardGroup>> groups) : groups_(std::move(groups)) {
    for (const auto& group : groups_) add_child(group->name(), as_group(group).module());
  }
  const char* kind() const override { return "ShardGroups"; }
  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    return child(0).forward(ctx, inputs, frame);
  }
  Values backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) override {
    return child(0).backward(ctx, dy, frame);
  }

 private:
  std::vector<std::shared_ptr<ShardGroup>> groups_;
};

}  // namespace

std::shared_ptr<ShardGroup> make_shard_group(const std::shared_ptr<Gangs>& gangs, const std::string& name,
                                             const std::vector<GroupParameter>& parameters,
                                             const ShardOptions& options, uint64_t seed) {
  std::shared_ptr<Gangs> held = gangs;
  if (held == nullptr) {
    GangOptions alone;
    alone.rank = 0;
    alone.size = 1;
    held = create_gangs(Gang::create(alone), MeshOptions{});
  }
  std::string arguments;
  const auto check_all = [&] {
    check_axes(*held);
    if (options.reshard_after_forward > 1)
      fail(Code::not_supported, "reshard_after_forward is ", options.reshard_after_forward,
           ", but a shard group is resharded by its caller; give -1, 0 or 1");
    check_parameters(name, parameters, options);
    arguments = signature_of(name, parameters, options, seed);
  };
  CollectiveCall(*held, "make_shard_group").check(check_all, arguments);
  auto group = std::make_shared<Group>(held, name, parameters, options);
  group->materialize(seed);
  return group;
}

std::shared_ptr<Model> model_from_groups(const std::vector<std::shared_ptr<ShardGroup>>& groups) {
  if (groups.empty()) fail(Code::invalid_argument, "model_from_groups: there are no groups");
  std::set<std::string> names, parameters;
  const std::shared_ptr<Gangs>& gangs = as_group(groups[0]).held_gangs();
  for (const auto& group : groups) {
    if (as_group(group).held_gangs() != gangs)
      fail(Code::invalid_argument, "model_from_groups: groups ", groups[0]->name(), " and ", group->name(),
           " have different gangs");
    if (!group->name().empty() && !names.insert(group->name()).second)
      fail(Code::invalid_argument, "model_from_groups: group \"", group->name(), "\" stands twice");
    for (const auto* names_of : {&group->parameters(), &group->aliases()})
      for (const NamedParameter& p : *names_of)
        if (!parameters.insert(p.name).second)
          fail(Code::invalid_argument, "model_from_groups: group \"", group->name(), "\" has ", p.name,
               ", as another group has; give each group a name of its own");
  }
  auto model = std::make_shared<Model>(std::make_shared<Groups>(groups), gangs);
  std::vector<const FsdpState*> states;
  std::vector<NamedParameter> aliases;
  for (const auto& group : groups) {
    states.push_back(&as_group(group).state());
    aliases.insert(aliases.end(), group->aliases().begin(), group->aliases().end());
  }
  model->build().adopt(states, std::move(aliases));
  return model;
}

}  // namespace gangway
