// The sizes of what the modules of a chain give in the forward of a step, to find the first module whose
// output differs between two ways to run a model.
//
// Thread rule: that of a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mesh/gangs.h"
#include "nn/module.h"

namespace gangway {

// Of the first output of one module: the number of its elements and the sum of their squares, over all
// microbatches.
struct OutputSize {
  double count = 0, squares = 0;
};
struct ModuleOutputs {
  std::map<std::string, OutputSize> sizes;  // by the full name of the module
  std::vector<std::string> order;           // in which they first ran
  std::string last;                         // the module that gives the loss
};

// Puts wrappers around the children of a chain, but for the last, which gives the loss, or of a custom
// module, and around the children of the chains, blocks and custom modules inside; they fill in `outputs` in
// each forward that a backward follows, and wait for the device. `outputs` outlives the model. Call it after
// the model was made. Another root gets none.
void observe_outputs(Module& root, ModuleOutputs& outputs);

// Returns the sums over the ranks of the gangs. Collective.
std::map<std::string, OutputSize> summed_over_ranks(Gangs& gangs, const ModuleOutputs& outputs);

// Returns "that of MODULE on rank R" for the first rank with an output that is not finite, and the first such
// module in the order of its forward; "" if there is none. Collective.
std::string first_not_finite(Gangs& gangs, const ModuleOutputs& outputs);

// Returns the first module in the order of `alone` whose output has another size over the mesh, if the losses
// differ: the last one if all outputs before it have the same size, and "" if that is not known. Over the
// mesh an output may be there as a whole several times.
std::string first_that_differs(const ModuleOutputs& alone, const std::map<std::string, OutputSize>& mesh,
                               double tolerance);

}  // namespace gangway
