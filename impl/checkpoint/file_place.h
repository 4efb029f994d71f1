// Where the values of a parameter lie in the files of its family: in a tensor of their own, or as rows of a
// tensor that has several parameters fused, or transposed. Every rank reads and writes the bytes of its own
// rows alone, whatever the files look like.
//
// Thread rule: values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "families/family.h"
#include "tensor/layout.h"

namespace gangway {

struct FilePlace {
  std::string name;       // of the tensor in the files
  Shape shape;            // of that tensor
  int64_t first_row = 0;  // of the parameter in the tensor as the modules have it
  bool transposed = false;

  // Whether the tensor in the files is the parameter as it is.
  bool is_plain(const Shape& parameter) const { return !transposed && shape == parameter; }
  // Returns the box of the tensor in the files that has a box of the parameter.
  Box in_file(const Box& box) const;
  // Returns dense rows of a box of the parameter as the box in the files has them: a view.
  Tensor as_in_file(const Tensor& rows, const Box& box) const;
};

// The places of all parameters of a model.
class FilePlaces {
 public:
  // `names`: all parameters, a tied one under each of its names.
  FilePlaces(const Module& root, const std::vector<NamedParameter>& names);

  const FilePlace& of(const std::string& parameter) const { return places_.at(parameter); }
  // Whether a tensor in the files follows from the options of the model, so that it is not read.
  bool is_derived(const std::string& name) const;
  // Drops the prefix that files of a model without a head do not have, if no name of `tensors` has it.
  template <typename Tensors>
  void fit_prefix(const Tensors& tensors) {
    const std::string prefix = family_ == nullptr ? "" : family_->base_prefix;
    if (prefix.empty()) return;
    for (const auto& [name, tensor] : tensors)
      if (name.starts_with(prefix)) return;
    drop_prefix(prefix);
  }

 private:
  void drop_prefix(const std::string& prefix);

  const Family* family_ = nullptr;  // null: the model is of no family
  std::map<std::string, FilePlace> places_;
  std::string dropped_;
};

}  // namespace gangway
