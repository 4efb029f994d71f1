// What an optimizer needs of other ranks: whole tensors, and sums over all pieces of a tensor. An optimizer
// sees pieces and never a gang; parallel/model/mesh_tensors.h implements this interface for a mesh.
//
// Some parameters are matrices whose update needs all their elements. gather() brings such tensors to ranks
// that share the work: each tensor has one owner, which computes with the whole of it, and scatter() brings
// the pieces of the result back to every rank that holds rows of the parameter.
//
// Thread rule: one thread at a time; gather, scatter and sum are collective, in the same order on all ranks.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "nn/parameter.h"
#include "tensor/stack.h"

namespace gangway {

class Ops;

class WholeTensors {
 public:
  virtual ~WholeTensors() = default;

  // The ranks among which whole tensors are shared out, and this rank's number among them. All have the same
  // parameters: with a pipeline, they are the ranks of one stage.
  virtual int ranks() const = 0;
  virtual int rank() const = 0;
  // Whether these ranks hold the parameter; false: it belongs to another stage.
  virtual bool holds(const Parameter& parameter) const = 0;
  // Temporaries of a step. They lie in the device's memory.
  virtual Stack& temporaries() = 0;

  // Rank r gets the whole of tensor r of the list, which has at most ranks() tensors. pieces[i] is this
  // rank's piece of tensor i, in the shape of its piece of parameters[i]; all are contiguous and have one
  // dtype. The list is equal on all ranks. `whole` is absent on a rank that gets none.
  virtual void gather(std::span<const Parameter* const> parameters, std::span<const Tensor> pieces,
                      const Tensor& whole, Stream& stream) = 0;
  // The way back: writes `pieces` from the whole tensors of the same list.
  virtual void scatter(std::span<const Parameter* const> parameters, const Tensor& whole,
                       std::span<const Tensor> pieces, Stream& stream) = 0;
  // Replaces `values` (contiguous f64) by their sums over the ranks of `axes`, such as "dp_shard+cp"; "": by
  // themselves.
  virtual void sum(const std::string& axes, const Tensor& values, Stream& stream) = 0;
};

// For parameters that this rank has whole. `ops` outlives the result.
std::unique_ptr<WholeTensors> make_local_tensors(Ops& ops);

}  // namespace gangway
