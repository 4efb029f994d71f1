// The parts of a frame. A wrapper may give the activations of a module memory of its own, in place of the
// frame's stack: a SavedPart. Between forward and backward its contents may lie elsewhere
// (parallel/activation_offload moves them to the host). A weight task of such a module enters the module's
// part before it runs.
//
// Thread rule: that of the frame; any thread may destroy a part.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace gangway {

class Module;

class SavedPart {
 public:
  virtual ~SavedPart() = default;
  virtual Tensor allocate(DType dtype, const Shape& shape) = 0;
  // Makes the contents available to later work of `stream` at the addresses that forward wrote. That work
  // only reads them.
  virtual void enter(Stream& stream) = 0;
};

// The part of a module exists from the module's forward until drop() or clear().
class SavedParts {
 public:
  void add(const Module& owner, std::shared_ptr<SavedPart> part) {
    parts_.emplace_back(&owner, std::move(part));
  }
  std::shared_ptr<SavedPart> of(const Module& owner) const;  // null: none
  std::shared_ptr<SavedPart> last() const { return parts_.empty() ? nullptr : parts_.back().second; }
  void drop(const Module& owner);
  void clear();

  // The part from which the frame allocates activations. Null: its own stack.
  void set_saving(SavedPart* part) { saving_ = part; }
  SavedPart* saving() const { return saving_; }
  // The part whose contents the weight tasks need that are pushed from now on, or null.
  void set_backward(SavedPart* part) { backward_ = part; }
  SavedPart* backward() const { return backward_; }

 private:
  std::vector<std::pair<const Module*, std::shared_ptr<SavedPart>>> parts_;  // in the order of forward
  SavedPart* saving_ = nullptr;
  SavedPart* backward_ = nullptr;
};

}  // namespace gangway
