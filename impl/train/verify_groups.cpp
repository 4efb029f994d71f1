#include <algorithm>
#include <cmath>

#include "parallel/collective_call.h"
#include "train/step.h"
#include "train/verify_sides.h"

namespace gangway {
namespace {

constexpr const char* kCall = "verify_groups";

// `over`: the gangs that the function got.
void check_step(const GroupsStep& made, const Gangs& over) {
  if (made.model == nullptr) fail(Code::invalid_argument, kCall, ": the function gave no model");
  if (&made.model->gangs() != &over)
    fail(Code::invalid_argument, kCall,
         ": the function made its groups over other gangs than those that it was called with");
  made.model->run().check_reduced(kCall);
  for (const NamedParameter& p : made.model->inspect().parameters())
    if (p.parameter->dtype != DType::f64)
      fail(Code::invalid_argument, kCall, ": parameter ", p.name, " is ", name(p.parameter->dtype),
           "; rounding would hide errors, so that groups are made in f64 here");
}

VerifySide side_of(const GroupsStep& made) {
  Model& model = *made.model;
  const auto optimizer = unit_sgd(model);
  StepOptions options;
  options.max_grad_norm = kNoClip;
  options.gradient_norms = true;
  VerifySide side;
  side.loss = made.loss;
  side.first = parameter_values(model);
  const StepResult result = optimizer_step(model, *optimizer, options, model.device().stream());
  side.finite = result.skipped == Skip::none && std::isfinite(made.loss);
  side.norms = model.inspect().gradient_norms();
  if (result.skipped != Skip::none) return side;
  if (result.grad_norm == 0)
    fail(Code::invalid_argument, kCall,
         ": all gradients are 0; the function ends after reduce and leaves the update to the caller");
  side.grad_norm = result.grad_norm;
  take_gradients(model, side);
  return side;
}

// Returns the index of the first loss that is not finite, or losses.size().
size_t first_not_finite(const std::vector<double>& losses) {
  const auto found = std::find_if(losses.begin(), losses.end(), [](double x) { return !std::isfinite(x); });
  return static_cast<size_t>(found - losses.begin());
}

// `losses`: those of all ranks, which are equal if the function is right.
VerifyResult result_of(const std::vector<NamedParameter>& parameters, const VerifySide& mesh,
                       const VerifySide& alone, const std::vector<double>& losses, double tolerance) {
  if (mesh.finite != alone.finite) {
    VerifyResult result = not_finite(parameters, mesh, alone, {});
    if (const size_t r = first_not_finite(losses); r < losses.size())
      result.refusal += text("; rank ", r, " is the first whose loss is not finite");
    return result;
  }
  VerifyResult result = compared(parameters, mesh, alone, tolerance, {});
  for (size_t r = 1; r < losses.size() && result.refusal.empty(); ++r)
    if (!near(losses[r], losses[0], tolerance))
      result.refusal = text("the loss is ", losses[0], " on rank 0 and ", losses[r], " on rank ", r,
                            "; every gradient is the same, so that it is a mean of that rank's rows alone");
  return result;
}

}  // namespace

VerifyResult verify_groups(const GangsPtr& gangs, const std::function<GroupsStep(const GangsPtr&)>& step,
                           double tolerance) {
  const CollectiveCall call(*gangs, kCall);
  call.check([&] { check_tolerance(kCall, tolerance); }, text(kCall, ", tolerance ", tolerance));
  GroupsStep over_mesh;
  call.run([&] { over_mesh = step(gangs); });
  const std::vector<double> losses = call.check([&] {
    check_step(over_mesh, *gangs);
    return over_mesh.loss;
  });
  VerifySide mesh = side_of(over_mesh);
  const size_t broken = first_not_finite(losses);
  mesh.loss = broken < losses.size() ? losses[broken] : losses[0];
  mesh.finite = mesh.finite && broken == losses.size();
  VerifySide alone;
  const std::vector<NamedParameter>& parameters = over_mesh.model->inspect().parameters();
  call.check([&] {
    const GangsPtr single = one_rank(gangs->root()->device());
    const GroupsStep whole = step(single);
    check_step(whole, *single);
    check_same(kCall, "made other groups", parameters, whole.model->inspect().parameters());
    alone = side_of(whole);
    if (!mesh.finite && !alone.finite)
      fail(Code::invalid_argument, kCall,
           ": the loss or a gradient is not finite, on one rank, too; give another batch");
  });
  VerifyResult result = result_of(parameters, mesh, alone, losses, tolerance);
  agree(*gangs, result);
  return result;
}

}  // namespace gangway
