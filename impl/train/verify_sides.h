// The two sides of a verification: what a step is over the mesh and on one rank, and how they are compared.
//
// Thread rule: that of a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "train/verify.h"

namespace gangway {

struct VerifySide {
  bool finite = true;  // loss and gradients; if they are not, the norms say which, and there are no gradients
  double loss = 0, grad_norm = 0, loss_after = 0;
  std::vector<std::vector<double>> first, gradients;  // of each parameter: before the step, and of it
  std::vector<double> norms;                          // of the gradients, as the step summed them
  std::vector<std::string> tied;                      // the parameters that have several names
};

constexpr double kNoClip = 1e300;  // a norm that takes the norm of the gradients, and clips nothing

void check_tolerance(const char* call, double tolerance);
// INVALID_ARGUMENT: the lists have other names or shapes. `made` says what the second list comes from.
void check_same(const char* call, const char* made, const std::vector<NamedParameter>& first,
                const std::vector<NamedParameter>& second);
// Returns plain SGD with rate 1, which moves each parameter by its gradient, on every mesh.
std::unique_ptr<Optimizer> unit_sgd(Model& model);
// Returns the whole values of the parameters. Collective.
std::vector<std::vector<double>> parameter_values(Model& model);
// Fills in the gradients, from the values before a step of unit_sgd and those after it, and what the model
// says of them. The step had StepOptions::gradient_norms. Collective.
void take_gradients(Model& model, VerifySide& side);
bool near(double a, double b, double tolerance);
// `module`: the first whose output differs, if that is known.
VerifyResult compared(const std::vector<NamedParameter>& parameters, const VerifySide& mesh,
                      const VerifySide& alone, double tolerance, std::string module);
// Of two sides of which one is not finite. `output`: the first output that is not, if that is known.
VerifyResult not_finite(const std::vector<NamedParameter>& parameters, const VerifySide& mesh,
                        const VerifySide& alone, const std::string& output);
// Each rank compares its own copy of what is whole on several ranks. Gives the ranks on which nothing differs
// what differs on the first rank on which something does, so that all of them refuse. Collective.
void agree(Gangs& gangs, VerifyResult& result);
GangsPtr one_rank(const Device& like);

}  // namespace gangway
