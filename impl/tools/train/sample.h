// Text by the trained model, where the settings ask for it.
#pragma once

#include "tools/train/handles.h"
#include "tools/train/settings.h"

namespace gangway::train {

// Continues sample.prompt, whose bytes are the tokens; writes sample.txt into the run's folder and prints it
// on rank 0 (`talks`). Collective. Does nothing without a prompt, and says so where the model cannot generate
// on its mesh.
void write_sample(const Settings& settings, gw_module* model, bool talks);

}  // namespace gangway::train
