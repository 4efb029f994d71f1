#include <gangway/verify.h>

#include "batch.h"
#include "callbacks.h"
#include "module_handle.h"
#include "parallel_options.h"
#include "train/verify.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

struct Release {
  void operator()(gw_module* model) const { gw_module_release(model); }
};

struct ReleaseGangs {
  void operator()(gw_gangs* gangs) const { release(gangs); }
};

ModulePtr built(gw_build_fn build, void* user) {
  gw_module* made = nullptr;
  run_callback("build", "gw_verify", [&] { return build(user, &made); });
  const std::unique_ptr<gw_module, Release> model(made);
  if (model == nullptr) fail(Code::invalid_argument, "build gave no model");
  return model->part("the model that build gave");
}

GroupsStep stepped(gw_groups_step_fn step, void* user, const GangsPtr& over) {
  const std::unique_ptr<gw_gangs, ReleaseGangs> gangs(new gw_gangs(over));
  gw_module* made = nullptr;
  GroupsStep result;
  run_callback("step", "gw_verify_groups", [&] { return step(user, gangs.get(), &result.loss, &made); });
  const std::unique_ptr<gw_module, Release> model(made);
  if (model == nullptr) fail(Code::invalid_argument, "step gave no model");
  if (model->module != nullptr || model->model == nullptr)
    fail(Code::invalid_argument, "step gave a model that gw_module_from_groups did not make");
  result.model = model->model;
  return result;
}

void write_result(gw_verify_result* result, const VerifyResult& r) {
  if (result != nullptr)
    write_struct(result, gw_verify_result{0, nullptr, r.loss, r.mesh_loss, r.grad_norm, r.mesh_grad_norm,
                                          static_cast<int64_t>(r.parameters),
                                          static_cast<int64_t>(r.differing), r.difference});
}

}  // namespace

void gw_verify_options_init(gw_verify_options* options, size_t size) {
  const VerifyOptions defaults;
  gw_verify_options o{};
  o.tolerance = defaults.tolerance;
  o.microbatches = defaults.microbatches;
  init_struct(options, size, o);
}

void gw_verify_result_init(gw_verify_result* result, size_t size) { start_struct(result, size); }

gw_status gw_verify(gw_gangs* gangs, gw_build_fn build, void* user, const gw_batch* batch,
                    const gw_verify_options* options, gw_verify_result* result) {
  GangsPtr over;  // outlives the entry, which hands over its stream at its end
  return guarded([&] {
    over = gangs_or_alone(gangs);
    VerifyOptions v;
    Batch b;
    CollectiveCall(*over, "verify").read([&] {
      if (result != nullptr) check_out_struct(result, "result");
      if (build == nullptr) fail(Code::invalid_argument, "build is null");
      const gw_verify_options o = read_struct(options, gw_verify_options_init, "options");
      v.parallel = parallel_options_of(o.parallel);
      v.microbatches = o.microbatches;
      v.tolerance = o.tolerance;
      b = batch_of(batch, EntryStream::use(over->root()->device().stream()));
    });
    const VerifyResult r = verify(
        over, [&] { return built(build, user); }, b, v);
    write_result(result, r);
    if (!r.refusal.empty()) fail(Code::mismatch, "verify: ", r.refusal);
  });
}

gw_status gw_verify_groups(gw_gangs* gangs, gw_groups_step_fn step, void* user,
                           const gw_verify_options* options, gw_verify_result* result) {
  GangsPtr over;  // outlives the entry, which hands over its stream at its end
  return guarded([&] {
    over = gangs_or_alone(gangs);
    double tolerance = 0;
    CollectiveCall(*over, "verify_groups").read([&] {
      if (result != nullptr) check_out_struct(result, "result");
      if (step == nullptr) fail(Code::invalid_argument, "step is null");
      const gw_verify_options o = read_struct(options, gw_verify_options_init, "options");
      if (o.parallel != nullptr || o.microbatches != 1)
        fail(Code::invalid_argument, "verify_groups: options.",
             o.parallel != nullptr ? "parallel is given" : "microbatches is not 1",
             ", but the caller's step shards and computes by itself");
      tolerance = o.tolerance;
      EntryStream::use(over->root()->device().stream());
    });
    const VerifyResult r = verify_groups(
        over, [&](const GangsPtr& with) { return stepped(step, user, with); }, tolerance);
    write_result(result, r);
    if (!r.refusal.empty()) fail(Code::mismatch, "verify_groups: ", r.refusal);
  });
}
