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

ModulePtr built(gw_build_fn build, void* user) {
  gw_module* made = nullptr;
  run_callback("build", "gw_verify", [&] { return build(user, &made); });
  const std::unique_ptr<gw_module, Release> model(made);
  if (model == nullptr) fail(Code::invalid_argument, "build gave no model");
  return model->part("the model that build gave");
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
    if (result != nullptr)
      write_struct(result, gw_verify_result{0, nullptr, r.loss, r.mesh_loss, r.grad_norm, r.mesh_grad_norm,
                                            static_cast<int64_t>(r.parameters),
                                            static_cast<int64_t>(r.differing), r.difference});
    if (!r.refusal.empty()) fail(Code::mismatch, "verify: ", r.refusal);
  });
}
