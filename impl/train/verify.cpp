#include "train/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/gradient.h"
#include "parallel/collective_call.h"
#include "tensor/host_view.h"
#include "train/step.h"
#include "train/whole_batch.h"

namespace gangway {
namespace {

constexpr double kNoClip = 1e300;  // a norm that takes the norm of the gradients, and clips nothing

// What one of the two models makes of the step.
struct Side {
  double loss = 0, grad_norm = 0, loss_after = 0;
  std::vector<std::vector<double>> first, gradients;  // of each parameter
};

void check(const VerifyOptions& options) {
  if (options.microbatches < 1)
    fail(Code::invalid_argument, "verify: microbatches is ", options.microbatches, ", below 1");
  if (!(std::isfinite(options.tolerance) && options.tolerance > 0))
    fail(Code::invalid_argument, "verify: tolerance is ", options.tolerance, ", not a finite number over 0");
}

// `build` must describe the same model each time.
void check_same(const Module& a, const Module& b) {
  const std::vector<NamedParameter> first = named_parameters(a), second = named_parameters(b);
  for (size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    const bool both = i < first.size() && i < second.size();
    if (both && first[i].name == second[i].name && first[i].parameter->shape == second[i].parameter->shape)
      continue;
    fail(Code::invalid_argument, "verify: the function built another model the second time: parameter ", i,
         " was ", i < first.size() ? first[i].name : "not there", " and is ",
         i < second.size() ? second[i].name : "not there");
  }
}

ParallelOptions in_f64(ParallelOptions options) {
  options.master_dtype = DType::f64;
  options.shard.param_dtype = options.shard.reduce_dtype = options.shard.output_dtype = DType{};
  options.shard.dtype_rules.clear();
  return options;
}

std::vector<std::vector<double>> values_of(Model& model) {
  Stream& stream = model.device().stream();
  std::vector<std::vector<double>> all;
  for (const NamedParameter& p : model.inspect().parameters()) {
    const HostView<double> host(model.inspect().gather(*p.parameter, stream), stream);
    all.emplace_back(host.begin(), host.end());
  }
  return all;
}

// A step of plain SGD with rate 1 moves each parameter by its gradient, on every mesh.
Side step_of(Model& model, const Batch& batch, int microbatches) {
  Stream& stream = model.device().stream();
  OptimizerOptions sgd;
  sgd.lr = 1;
  const auto optimizer = make_optimizer("sgd", model.inspect().parameters(), sgd, model.ops());
  StepOptions options;
  options.microbatches = microbatches;
  options.max_grad_norm = kNoClip;
  Side side;
  side.first = values_of(model);
  const StepResult result = train_step(model, optimizer.get(), batch, options, stream);
  if (result.skipped != Skip::none)
    fail(Code::invalid_argument, "verify: ",
         result.skipped == Skip::no_weight ? "no item of the batch counts in the loss"
                                           : "the loss or a gradient is not finite",
         "; give another batch");
  side.loss = result.loss;
  side.grad_norm = result.grad_norm;
  side.gradients = side.first;
  const std::vector<std::vector<double>> after = values_of(model);
  for (size_t i = 0; i < after.size(); ++i)
    for (size_t j = 0; j < after[i].size(); ++j) side.gradients[i][j] -= after[i][j];
  side.loss_after = eval_step(model, batch, options, stream).loss;
  return side;
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x * x;
  return std::sqrt(sum);
}
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> difference = a;
  for (size_t i = 0; i < b.size(); ++i) difference[i] -= b[i];
  return norm(difference);
}

bool near(double a, double b, double tolerance) {
  return std::fabs(a - b) <= tolerance * std::max(std::fabs(a), std::fabs(b));
}

// Fills in what differs between the gradients. What f64 cannot show, since the parameter or the whole
// gradient is much larger, does not count.
void compare_gradients(const std::vector<NamedParameter>& parameters, const Side& mesh, const Side& alone,
                       double tolerance, VerifyResult& result) {
  constexpr double kRounding = 1e-14;
  for (size_t i = parameters.size(); i-- > 0;) {
    if (!wants_gradient(*parameters[i].parameter)) continue;
    ++result.parameters;
    const double size = norm(alone.gradients[i]);
    const double difference = distance(mesh.gradients[i], alone.gradients[i]);
    const double most = tolerance * size + kRounding * (norm(alone.first[i]) + alone.grad_norm);
    if (difference <= most || result.differing++ != 0) continue;
    result.parameter = parameters[i].name;
    result.difference = difference / std::max(size, std::numeric_limits<double>::min());
  }
}

std::string refusal_of(const std::vector<NamedParameter>& parameters, const Side& mesh, const Side& alone,
                       double tolerance, const VerifyResult& result) {
  for (size_t i = 0; i < parameters.size(); ++i)
    if (mesh.first[i] != alone.first[i])
      return text("the first values of ", parameters[i].name, " are not those of one rank");
  const std::string losses = text("the loss is ", mesh.loss, ", and ", alone.loss, " on one rank");
  if (result.differing != 0)
    return text("the gradient of ", result.parameter, " differs by ", result.difference,
                " of its norm from that of one rank; it is the first of ", result.differing,
                " that differ of ", result.parameters, ", in the order of backward; ", losses);
  if (!near(mesh.loss, alone.loss, tolerance)) return losses + "; every gradient is the same";
  if (!near(mesh.grad_norm, alone.grad_norm, tolerance))
    return text("the norm of the gradients is ", mesh.grad_norm, ", and ", alone.grad_norm,
                " on one rank, although every gradient is the same");
  if (!near(mesh.loss_after, alone.loss_after, tolerance))
    return text("the loss after a step is ", mesh.loss_after, ", and ", alone.loss_after,
                " on one rank, although every gradient is the same");
  return {};
}

std::shared_ptr<Gangs> one_rank(const Device& like) {
  GangOptions options;
  options.device = like.name();
  options.rank = 0;
  options.size = 1;
  options.name = "verify";
  return create_gangs(Gang::create(options), MeshOptions{});
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
        check_same(*module, *whole);
      },
      text("verify, tolerance ", options.tolerance));
  Model model(module, gangs);
  model.build().parallelize(in_f64(options.parallel));
  const Side mesh = step_of(model, batch, options.microbatches);
  const std::vector<std::string> batches = gather_batches(*gangs, batch, model.device().stream());
  Side alone;
  call.check([&] {
    Model single(whole, one_rank(model.device()));
    ParallelOptions same;
    same.seed = options.parallel.seed;
    single.build().parallelize(in_f64(same));
    alone = step_of(single, joined_batch(batches, single.device()), 1);
  });
  VerifyResult result;
  result.loss = alone.loss;
  result.mesh_loss = mesh.loss;
  result.grad_norm = alone.grad_norm;
  result.mesh_grad_norm = mesh.grad_norm;
  const std::vector<NamedParameter>& parameters = model.inspect().parameters();
  compare_gradients(parameters, mesh, alone, options.tolerance, result);
  result.refusal = refusal_of(parameters, mesh, alone, options.tolerance, result);
  return result;
}

}  // namespace gangway
