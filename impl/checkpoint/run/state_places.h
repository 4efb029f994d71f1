// Where the states of an optimizer lie in a file of states: as the parameters lie in the family's own files.
// A program that has the model in another framework finds there what it calls exp_avg.NAME, as it finds NAME
// in model.safetensors.
//
// Thread rule: values.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_place.h"
#include "optim/optimizer.h"
#include "parallel/model/model.h"

namespace gangway {

class StatePlaces {
 public:
  StatePlaces(Model& model, const Optimizer& optimizer);

  // Returns where a save writes a state of parameter `i`. A state keeps the parameter's own name and layout if it
  // has not one element for each of the parameter's (a mean of rows), or if some of the parameters that a tensor
  // of the files fuses are frozen and have no such state.
  FilePlace of(size_t i, const Optimizer::Slot& slot) const;
  // Returns where a file may have it: there, or under the parameter's own name.
  std::vector<FilePlace> candidates(size_t i, const Optimizer::Slot& slot) const;
  // Returns the ends of the names of all states of parameter `i`.
  std::vector<std::string> ends(size_t i) const;

 private:
  FilePlace own(size_t i, const Optimizer::Slot& slot) const;
  FilePlace as_parameter(size_t i, const Optimizer::Slot& slot) const;

  const Optimizer& optimizer_;
  const FilePlaces places_;
  std::map<std::string, int64_t> elements_;  // of this rank's states and their parameters, by name in a file
};

}  // namespace gangway
