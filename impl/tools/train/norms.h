// norms.jsonl in the run's folder: a line for each chosen step, with its loss and the gradient norm of each
// parameter. gw-compare reads it.
//
// Thread rule: one thread; the functions of the library that it calls are local.
#pragma once

#include <gangway/gangway.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/train/settings.h"

namespace gangway::train {

class Norms {
 public:
  // `model` must outlive it. Rank 0 writes.
  Norms(const Settings& s, gw_gang* root, gw_module* model);

  // Appends the line of a step that has computed gradient norms. Returns what went wrong with the file, or
  // "".
  std::string write(int64_t step, double loss);
  // Cuts the lines of steps above `step`, which will come again. False: the file cannot be written.
  bool restore(int64_t step);

 private:
  gw_module* const model_;
  std::string path_;  // empty: another rank writes
  std::vector<std::string> names_;
};

}  // namespace gangway::train
