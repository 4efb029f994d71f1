#include <gangway/optim.h>

#include "module_handle.h"
#include "parallel/collective_call.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(LrSchedule::Kind::cosine) == GW_COSINE);

namespace {

std::vector<OptimizerRule> rules_of(const gw_optimizer_rule* rules, size_t count) {
  if (count > 0) required(rules, "options.rules");
  std::vector<OptimizerRule> all;
  for (size_t i = 0; i < count; ++i) {
    const gw_optimizer_rule r = read_element(rules, i, gw_optimizer_rule_init, "options.rules");
    all.push_back(
        {&required(r.pattern, "options.rules[i].pattern"), r.lr_scale, r.weight_decay, r.frozen != 0});
  }
  return all;
}

// The fields that both kinds of options have.
template <typename Options>
OptimizerOptions common_of(const Options& o) {
  if (o.schedule < GW_CONSTANT || o.schedule > GW_COSINE)
    fail(Code::invalid_argument, "options.schedule is ", o.schedule, ", not 0 to ", GW_COSINE);
  OptimizerOptions r;
  r.lr = o.lr;
  r.weight_decay = o.weight_decay;
  r.schedule = {static_cast<LrSchedule::Kind>(o.schedule), o.warmup_steps, o.total_steps, o.last_lr_ratio};
  r.rules = rules_of(o.rules, o.rule_count);
  r.loss_scale = {o.loss_scale, o.initial_loss_scale, o.loss_scale_interval};
  return r;
}

template <typename Options>
void set_loss_scale_defaults(Options& o) {
  const LossScaleOptions d;
  o.loss_scale = d.fixed;
  o.initial_loss_scale = d.initial;
  o.loss_scale_interval = d.interval;
}

}  // namespace

void gw_optimizer_rule_init(gw_optimizer_rule* rule, size_t size) {
  gw_optimizer_rule d{};
  d.lr_scale = 1;
  d.weight_decay = -1;
  init_struct(rule, size, d);
}

void gw_adamw_options_init(gw_adamw_options* options, size_t size) {
  const OptimizerOptions o;
  gw_adamw_options d{};
  d.lr = o.lr;
  d.beta1 = o.beta1;
  d.beta2 = o.beta2;
  d.eps = o.eps;
  d.weight_decay = o.weight_decay;
  d.moment_dtype = GW_F32;
  set_loss_scale_defaults(d);
  init_struct(options, size, d);
}

void gw_sgd_options_init(gw_sgd_options* options, size_t size) {
  gw_sgd_options d{};
  d.lr = OptimizerOptions{}.lr;
  set_loss_scale_defaults(d);
  init_struct(options, size, d);
}

gw_status gw_adamw_create(gw_module* model, const gw_adamw_options* options, gw_optimizer** out_optimizer) {
  return guarded([&] {
    gw_optimizer*& result = out(out_optimizer, "out_optimizer");
    const gw_adamw_options o = read_struct(options, gw_adamw_options_init, "options");
    OptimizerOptions r = common_of(o);
    r.beta1 = o.beta1;
    r.beta2 = o.beta2;
    r.eps = o.eps;
    if (o.moment_dtype != GW_DTYPE_NONE) r.moment_dtype = dtype_of(o.moment_dtype);
    Model& m = required(model, "model").ready();
    m.run().order(EntryStream::use(m.device().stream()));  // on which the state is made
    result = new gw_optimizer(model->model, make_adamw(m.inspect().parameters(), r, m.ops()));
  });
}

gw_status gw_sgd_create(gw_module* model, const gw_sgd_options* options, gw_optimizer** out_optimizer) {
  return guarded([&] {
    gw_optimizer*& result = out(out_optimizer, "out_optimizer");
    const gw_sgd_options o = read_struct(options, gw_sgd_options_init, "options");
    OptimizerOptions r = common_of(o);
    r.momentum = o.momentum;
    r.nesterov = o.nesterov != 0;
    Model& m = required(model, "model").ready();
    m.run().order(EntryStream::use(m.device().stream()));  // on which the state is made
    result = new gw_optimizer(model->model, make_sgd(m.inspect().parameters(), r, m.ops()));
  });
}

gw_optimizer* gw_optimizer_retain(gw_optimizer* optimizer) { return retain(optimizer); }
void gw_optimizer_release(gw_optimizer* optimizer) { release(optimizer); }

gw_status gw_optimizer_steps(const gw_optimizer* optimizer, int64_t* out_steps) {
  return guarded([&] {
    int64_t& steps = out(out_steps, "out_steps");
    steps = required(optimizer, "optimizer").optimizer->steps();
  });
}

gw_status gw_optimizer_lr(const gw_optimizer* optimizer, double* out_lr) {
  return guarded([&] {
    double& lr = out(out_lr, "out_lr");
    lr = required(optimizer, "optimizer").optimizer->lr();
  });
}

gw_status gw_optimizer_set_lr(gw_optimizer* optimizer, double lr) {
  return guarded([&] { required(optimizer, "optimizer").optimizer->set_lr(lr); });
}

gw_status gw_optimizer_loss_scale(const gw_optimizer* optimizer, double* out_scale) {
  return guarded([&] {
    double& scale = out(out_scale, "out_scale");
    scale = required(optimizer, "optimizer").optimizer->loss_scale().value();
  });
}

gw_status gw_optimizer_set_loss_scale(gw_optimizer* optimizer, double scale) {
  return guarded([&] { required(optimizer, "optimizer").optimizer->loss_scale().set(scale); });
}

gw_status gw_clip_grad_norm(gw_module* model, double max_norm, double p, void* stream, double* out_norm) {
  return guarded([&] {
    if (out_norm != nullptr) *out_norm = 0;
    Model& m = required(model, "model").ready();
    Stream* ordered_on = nullptr;
    CollectiveCall(m.gangs(), "clip_grad_norm").read([&] {
      out(out_norm, "out_norm");
      ordered_on = &EntryStream::of(m.device(), stream);
    });
    *out_norm = m.run().clip_gradients(max_norm, p, *ordered_on);
  });
}

gw_status gw_zero_grad(gw_module* model, void* stream) {
  return guarded([&] {
    Model& m = required(model, "model").ready();
    Stream& ordered_on = EntryStream::of(m.device(), stream);
    CollectiveCall(m.gangs(), "zero_grad").run([&] { m.run().zero_gradients(ordered_on); });
  });
}
