// Whole tensors and sums for an optimizer over a mesh (optim/whole_tensors.h). One all_to_all brings the
// pieces of up to one tensor for each rank to their owners, and one brings the pieces of the results back. A
// replica gathers from its own ranks.
//
// Thread rule: that of the interface.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "mesh/gangs.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "optim/whole_tensors.h"

namespace gangway {

class Model;

class MeshTensors final : public WholeTensors {
 public:
  // `parameters` are all of a materialised model, in the same order on all ranks. What is passed outlives
  // this object.
  MeshTensors(const Gangs& gangs, Ops& ops, Stack& temporaries, std::vector<NamedParameter> parameters);

  int ranks() const override { return static_cast<int>(coordinates_.size()); }
  int rank() const override { return rank_; }
  bool holds(const Parameter& parameter) const override;
  Stack& temporaries() override { return temporaries_; }
  void gather(std::span<const Parameter* const> parameters, std::span<const Tensor> pieces,
              const Tensor& whole, Stream& stream) override;
  void scatter(std::span<const Parameter* const> parameters, const Tensor& whole,
               std::span<const Tensor> pieces, Stream& stream) override;
  void sum(const std::string& axes, const Tensor& values, Stream& stream) override;

 private:
  struct Places {
    AxisSet split = 0;       // the axes that split the parameter
    std::vector<Box> boxes;  // of each rank of the stage
  };
  class Exchange;
  // The first call is collective: ranks know the bounds of their own pieces alone, and tell each other.
  const Places& places_of(const Parameter& parameter);
  void exchange_places();
  GangPtr stage() const;  // all ranks of this pipeline stage
  // Whether ranks a and b of the stage hold pieces of the same replica.
  bool same_replica(AxisSet split, int a, int b) const;

  Ops& ops_;
  Stack& temporaries_;
  const std::vector<NamedParameter> parameters_;
  const Gangs& gangs_;
  std::vector<Coordinates> coordinates_;  // of each rank of this pipeline stage
  int rank_ = 0;
  std::map<const Parameter*, Places> places_;
};

std::unique_ptr<WholeTensors> make_mesh_tensors(Model& model);

}  // namespace gangway
