// Which linear layers a caller's patterns choose, for what a whole model gets before it is wrapped: adapters,
// products in FP8.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/linear.h"

namespace gangway {

// The words of refusals, as {"lora", "has an adapter", "have an adapter"}.
struct LinearUse {
  const char *call, *has, *have;
};

// Returns the linear layers among the modules that the patterns match (path_matches), by path. A layer whose
// parent computes with its weight (an lm_head) is not among them. No patterns: every linear layer.
// INVALID_ARGUMENT: a pattern matches no such layer. NOT_FOUND: nothing matches a pattern.
std::map<std::string, Linear*> chosen_linears(const ModulePtr& root, const std::vector<std::string>& patterns,
                                              const LinearUse& use);

}  // namespace gangway
