#include <gangway/optim.h>

#include "optim/settings.h"
#include "optimizer_options.h"
#include "parallel/model/mesh_tensors.h"

using namespace gangway;
using namespace gangway::capi;

std::vector<OptimizerRule> capi::rules_of(const gw_optimizer_rule* rules, size_t count) {
  if (count > 0) required(rules, "options.rules");
  std::vector<OptimizerRule> all;
  for (size_t i = 0; i < count; ++i) {
    const gw_optimizer_rule r = read_element(rules, i, gw_optimizer_rule_init, "options.rules");
    all.push_back({&required(r.pattern, "options.rules[i].pattern"), r.lr_scale, r.weight_decay,
                   r.frozen != 0, r.adamw});
  }
  return all;
}

LrSchedule::Kind capi::schedule_of(int32_t schedule) {
  if (schedule < 0 || schedule >= schedule_count())
    fail(Code::invalid_argument, "options.schedule is ", schedule, ", not 0 to ", schedule_count() - 1);
  return static_cast<LrSchedule::Kind>(schedule);
}

OptimizerOptions capi::optimizer_options_of(const char* kind, const char* const names[],
                                            const char* const values[], size_t count) {
  required(kind, "kind");
  if (count > 0) required(names, "names"), required(values, "values");
  const OptimizerKind& row = optimizer_kind(kind);
  std::vector<std::pair<std::string, std::string>> settings;
  for (size_t i = 0; i < count; ++i)
    settings.emplace_back(&required(names[i], "names[i]"), &required(values[i], "values[i]"));
  return options_from(row, settings);
}

gw_optimizer* capi::create_optimizer(const char* kind, gw_module* model, const OptimizerOptions& options) {
  Model& m = required(model, "model").ready();
  Stream& stream = EntryStream::use(m.device().stream());
  m.run().order(stream);  // on which the states are made
  OptimizerOptions seeded = options;
  seeded.seed = m.run().context(stream).seed;
  return new gw_optimizer(
      model->model, make_optimizer(kind, m.inspect().parameters(), seeded, m.ops(), make_mesh_tensors(m)));
}

void gw_optimizer_rule_init(gw_optimizer_rule* rule, size_t size) {
  gw_optimizer_rule d{};
  d.lr_scale = 1;
  d.weight_decay = -1;
  d.adamw = -1;
  init_struct(rule, size, d);
}

gw_status gw_optimizer_create(gw_module* model, const char* kind, const char* const names[],
                              const char* const values[], size_t option_count, gw_optimizer** out_optimizer) {
  return guarded([&] {
    gw_optimizer*& result = out(out_optimizer, "out_optimizer");
    required(model, "model");
    const OptimizerOptions options = optimizer_options_of(kind, names, values, option_count);
    result = create_optimizer(kind, model, options);
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

gw_status gw_optimizer_set_steps(gw_optimizer* optimizer, int64_t steps) {
  return guarded([&] { required(optimizer, "optimizer").optimizer->set_steps(steps); });
}

gw_status gw_optimizer_base_lr(const gw_optimizer* optimizer, double* out_lr) {
  return guarded([&] {
    double& lr = out(out_lr, "out_lr");
    lr = required(optimizer, "optimizer").optimizer->base_lr();
  });
}

gw_status gw_optimizer_finite_steps(const gw_optimizer* optimizer, int64_t* out_steps) {
  return guarded([&] {
    int64_t& steps = out(out_steps, "out_steps");
    steps = required(optimizer, "optimizer").optimizer->loss_scale().finite_steps();
  });
}

gw_status gw_optimizer_restore_loss_scale(gw_optimizer* optimizer, double scale, int64_t finite_steps) {
  return guarded(
      [&] { required(optimizer, "optimizer").optimizer->loss_scale().restore(scale, finite_steps); });
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
