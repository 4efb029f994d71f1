#include "train/verify_sides.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "gang/agreement.h"
#include "nn/gradient.h"
#include "tensor/host_view.h"

namespace gangway {
namespace {

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

// Fills in what differs between the gradients. What f64 cannot show, since the parameter or the whole
// gradient is much larger, does not count.
void compare_gradients(const std::vector<NamedParameter>& parameters, const VerifySide& mesh,
                       const VerifySide& alone, double tolerance, VerifyResult& result) {
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

// Says whose gradient makes the difference between the two norms of all.
std::string norm_culprit(const std::vector<NamedParameter>& parameters, const VerifySide& mesh,
                         const VerifySide& alone, double tolerance) {
  for (size_t i = 0; i < parameters.size(); ++i)
    if (wants_gradient(*parameters[i].parameter) && !near(mesh.norms[i], alone.norms[i], tolerance))
      return text(": that of ", parameters[i].name, " counts as ", mesh.norms[i], ", and as ", alone.norms[i],
                  " on one rank");
  std::string tied;
  for (const std::string& name : alone.tied) tied += (tied.empty() ? "" : ", ") + name;
  return tied.empty() ? "" : ": each counts as it should by itself, so that a tied one counts twice: " + tied;
}

VerifyResult numbers_of(const VerifySide& mesh, const VerifySide& alone) {
  VerifyResult result;
  result.loss = alone.loss;
  result.mesh_loss = mesh.loss;
  result.grad_norm = alone.grad_norm;
  result.mesh_grad_norm = mesh.grad_norm;
  return result;
}

std::string refusal_of(const std::vector<NamedParameter>& parameters, const VerifySide& mesh,
                       const VerifySide& alone, double tolerance, const VerifyResult& result) {
  for (size_t i = 0; i < parameters.size(); ++i)
    if (mesh.first[i] != alone.first[i])
      return text("the first values of ", parameters[i].name, " are not those of one rank");
  std::string losses = text("the loss is ", mesh.loss, ", and ", alone.loss, " on one rank");
  if (!result.module.empty())
    losses += "; the first output that differs, in the order of forward, is that of " + result.module;
  if (result.differing != 0)
    return text("the gradient of ", result.parameter, " differs by ", result.difference,
                " of its norm from that of one rank; it is the first of ", result.differing,
                " that differ of ", result.parameters, ", in the order of backward; ", losses);
  if (!near(mesh.loss, alone.loss, tolerance)) return losses + "; every gradient is the same";
  if (!near(mesh.grad_norm, alone.grad_norm, tolerance))
    return text("the norm of the gradients is ", mesh.grad_norm, ", and ", alone.grad_norm,
                " on one rank, although every gradient is the same",
                norm_culprit(parameters, mesh, alone, tolerance));
  if (!near(mesh.loss_after, alone.loss_after, tolerance))
    return text("the loss after a step is ", mesh.loss_after, ", and ", alone.loss_after,
                " on one rank, although every gradient is the same");
  return {};
}

}  // namespace

VerifyResult not_finite(const std::vector<NamedParameter>& parameters, const VerifySide& mesh,
                        const VerifySide& alone, const std::string& output) {
  VerifyResult result = numbers_of(mesh, alone);
  const VerifySide& broken = mesh.finite ? alone : mesh;
  for (size_t i = parameters.size(); i-- > 0;) {
    if (!wants_gradient(*parameters[i].parameter)) continue;
    ++result.parameters;
    if (!std::isfinite(broken.norms[i]) && result.differing++ == 0) result.parameter = parameters[i].name;
  }
  result.refusal =
      text(mesh.finite ? "on one rank" : "over the mesh", " the loss is ", broken.loss, ", and ",
           mesh.finite ? mesh.loss : alone.loss, mesh.finite ? " over the mesh" : " on one rank");
  if (!output.empty())
    result.refusal += "; the first output that is not finite, in the order of forward, is " + output;
  if (result.differing != 0)
    result.refusal += text("; the gradient of ", result.parameter, " is the first that is not finite, of ",
                           result.differing, " of ", result.parameters, ", in the order of backward");
  return result;
}

void check_tolerance(const char* call, double tolerance) {
  if (!(std::isfinite(tolerance) && tolerance > 0))
    fail(Code::invalid_argument, call, ": tolerance is ", tolerance, ", not a finite number over 0");
}

void check_same(const char* call, const char* made, const std::vector<NamedParameter>& first,
                const std::vector<NamedParameter>& second) {
  for (size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    const bool both = i < first.size() && i < second.size();
    if (both && first[i].name == second[i].name && first[i].parameter->shape == second[i].parameter->shape)
      continue;
    fail(Code::invalid_argument, call, ": the function ", made, " the second time: parameter ", i, " was ",
         i < first.size() ? first[i].name : "not there", " and is ",
         i < second.size() ? second[i].name : "not there");
  }
}

std::unique_ptr<Optimizer> unit_sgd(Model& model) {
  OptimizerOptions sgd;
  sgd.lr = 1;
  return make_optimizer("sgd", model.inspect().parameters(), sgd, model.ops());
}

std::vector<std::vector<double>> parameter_values(Model& model) {
  Stream& stream = model.device().stream();
  std::vector<std::vector<double>> all;
  for (const NamedParameter& p : model.inspect().parameters()) {
    const HostView<double> host(model.inspect().gather(*p.parameter, stream), stream);
    all.emplace_back(host.begin(), host.end());
  }
  return all;
}

void take_gradients(Model& model, VerifySide& side) {
  side.gradients = side.first;
  const std::vector<std::vector<double>> after = parameter_values(model);
  for (size_t i = 0; i < after.size(); ++i)
    for (size_t j = 0; j < after[i].size(); ++j) side.gradients[i][j] -= after[i][j];
  side.norms = model.inspect().gradient_norms();
  const std::vector<NamedParameter> names = model.inspect().names();
  const size_t count = model.inspect().parameters().size();
  for (size_t i = 0; i < count; ++i)
    if (std::any_of(names.begin() + static_cast<ptrdiff_t>(count), names.end(),
                    [&](const NamedParameter& alias) { return alias.parameter == names[i].parameter; }))
      side.tied.push_back(names[i].name);
}

bool near(double a, double b, double tolerance) {
  return std::fabs(a - b) <= tolerance * std::max(std::fabs(a), std::fabs(b));
}

VerifyResult compared(const std::vector<NamedParameter>& parameters, const VerifySide& mesh,
                      const VerifySide& alone, double tolerance, std::string module) {
  VerifyResult result = numbers_of(mesh, alone);
  result.module = std::move(module);
  compare_gradients(parameters, mesh, alone, tolerance, result);
  result.refusal = refusal_of(parameters, mesh, alone, tolerance, result);
  return result;
}

void agree(Gangs& gangs, VerifyResult& result) {
  struct Numbers {
    uint64_t differing;
    double difference;
    uint64_t name_bytes;  // the name of the parameter comes next, then the refusal
  } numbers{result.differing, result.difference, result.parameter.size()};
  std::string own(reinterpret_cast<const char*>(&numbers), sizeof numbers);
  own += result.parameter + result.refusal;
  const std::vector<std::string> all = gangs.root()->agreement().all_gather_bytes(Channel::control, own);
  for (size_t r = 0; r < all.size() && result.refusal.empty(); ++r) {
    std::memcpy(&numbers, all[r].data(), sizeof numbers);
    const size_t end = sizeof numbers + numbers.name_bytes;
    if (end == all[r].size()) continue;
    result.differing = numbers.differing;
    result.difference = numbers.difference;
    result.parameter = all[r].substr(sizeof numbers, numbers.name_bytes);
    result.refusal = text("on rank ", r, ", but not on this one: ", all[r].substr(end));
  }
}

GangsPtr one_rank(const Device& like) {
  GangOptions options;
  options.device = like.name();
  options.rank = 0;
  options.size = 1;
  options.name = "verify";
  return create_gangs(Gang::create(options), MeshOptions{});
}

}  // namespace gangway
