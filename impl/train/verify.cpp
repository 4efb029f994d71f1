#include "train/verify.h"

#include "parallel/collective_call.h"
#include "train/module_outputs.h"
#include "train/step.h"
#include "train/verify_sides.h"
#include "train/whole_batch.h"

namespace gangway {
namespace {

void check(const VerifyOptions& options) {
  if (options.microbatches < 1)
    fail(Code::invalid_argument, "verify: microbatches is ", options.microbatches, ", below 1");
  check_tolerance("verify", options.tolerance);
}

ParallelOptions in_f64(ParallelOptions options) {
  options.master_dtype = DType::f64;
  options.shard.param_dtype = options.shard.reduce_dtype = options.shard.output_dtype = DType{};
  options.shard.dtype_rules.clear();
  return options;
}

VerifySide step_of(Model& model, const Batch& batch, int microbatches) {
  Stream& stream = model.device().stream();
  const auto optimizer = unit_sgd(model);
  StepOptions options;
  options.microbatches = microbatches;
  options.max_grad_norm = kNoClip;
  options.gradient_norms = true;
  VerifySide side;
  side.first = parameter_values(model);
  const StepResult result = train_step(model, optimizer.get(), batch, options, stream);
  if (result.skipped == Skip::no_weight)
    fail(Code::invalid_argument, "verify: no item of the batch counts in the loss; give another batch");
  side.finite = result.skipped == Skip::none;
  side.loss = result.loss;
  side.grad_norm = result.grad_norm;
  side.norms = model.inspect().gradient_norms();
  if (!side.finite) return side;
  take_gradients(model, side);
  side.loss_after = eval_step(model, batch, options, stream).loss;
  return side;
}

}  // namespace

VerifyResult verify(const GangsPtr& gangs, const std::function<ModulePtr()>& build, const Batch& batch,
                    const VerifyOptions& options) {
  ModulePtr module, whole;
  const CollectiveCall call(*gangs, "verify");
  call.check(
      [&] {
        check(options);
        module = build();
        whole = build();
        check_same("verify", "built another model", named_parameters(*module), named_parameters(*whole));
      },
      text("verify, tolerance ", options.tolerance));
  ModuleOutputs mesh_outputs, outputs;
  Model model(module, gangs);
  model.build().parallelize(in_f64(options.parallel));
  observe_outputs(model.root(), mesh_outputs);
  const VerifySide mesh = step_of(model, batch, options.microbatches);
  const std::vector<std::string> batches = gather_batches(*gangs, batch, model.device().stream());
  const std::map<std::string, OutputSize> sizes = summed_over_ranks(*gangs, mesh_outputs);
  const std::string broken = mesh.finite ? std::string() : first_not_finite(*gangs, mesh_outputs);
  VerifySide alone;
  call.check([&] {
    Model single(whole, one_rank(model.device()));
    ParallelOptions same;
    same.seed = options.parallel.seed;
    single.build().parallelize(in_f64(same));
    observe_outputs(single.root(), outputs);
    alone = step_of(single, joined_batch(batches, single.device()), 1);
    if (!mesh.finite && !alone.finite)
      fail(Code::invalid_argument,
           "verify: the loss or a gradient is not finite, on one rank, too; give another batch");
  });
  const std::vector<NamedParameter>& parameters = model.inspect().parameters();
  if (mesh.finite != alone.finite) {
    VerifyResult result = not_finite(parameters, mesh, alone, broken);
    agree(*gangs, result);
    return result;
  }
  const bool differs = !near(mesh.loss, alone.loss, options.tolerance);
  VerifyResult result =
      compared(parameters, mesh, alone, options.tolerance,
               differs ? first_that_differs(outputs, sizes, options.tolerance) : std::string());
  agree(*gangs, result);
  return result;
}

}  // namespace gangway
