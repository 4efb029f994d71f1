// Draws the losses of a run over its steps as an SVG picture.
//
// Thread rule: pure function.
#pragma once

#include <string>
#include <vector>

#include "metrics/log_files.h"

namespace gangway {

// `points` ascend by step. More points than the picture has columns are drawn as means.
std::string draw_losses(const std::vector<LogFile::Point>& points);

}  // namespace gangway
