// The result of a step as text: a run that stops before the evaluation of its last step keeps that step's
// result in the checkpoint, and writes its row of metrics when it goes on.
//
// Thread rule: pure functions.
#pragma once

#include <gangway/train.h>

#include <string>

namespace gangway::train {

// Every number that a row of metrics needs, with all its bits.
std::string to_text(const gw_step_result& result);
// Throws Failed if the text is not one of to_text.
gw_step_result step_result_of(const std::string& text);

}  // namespace gangway::train
