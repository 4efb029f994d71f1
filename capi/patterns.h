// What the calls have in common that change the linear layers of a whole model before it is wrapped: adapters,
// FP8.
//
// Thread rule: that of a module.
#pragma once

#include <string>
#include <vector>

#include "module_handle.h"

namespace gangway::capi {

// Returns the patterns of a text that separates them by commas; none for null. `name` begins the texts of
// refusals, as in "options.patterns".
std::vector<std::string> patterns_of(const char* given, const char* name);

// Returns the tree of a whole model that nothing has wrapped. INVALID_STATE otherwise; `what` the model gets,
// as "adapters", is part of the text.
ModulePtr whole_description(gw_module* model, const char* what);

}  // namespace gangway::capi
