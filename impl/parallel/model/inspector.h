// Looking into a model: its parameters, values and gradients, and its memory.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/memory_use.h"
#include "parallel/model/runner.h"

namespace gangway {

class ModelInspector {
 public:
  ModelInspector(ModelParts& parts, ModelRunner& runner) : parts_(parts), runner_(runner) {}

  const std::vector<NamedParameter>& parameters() const { return parts_.parameters; }
  std::vector<NamedParameter> names() const;                       // with the later names of tied parameters
  const NamedParameter& parameter(const std::string& name) const;  // aliases too; NOT_FOUND
  // Whole value in the master's dtype, on every rank. Collective.
  Tensor gather(const Parameter& parameter, Stream& stream);
  // This rank's box of the gradient, zero where nothing was added (shard_grad alone is undefined then).
  // Local.
  Tensor gradient(Parameter& parameter, Stream& stream);
  // The full gradient of this rank's own backward while there is one (else absent), zero likewise. Local.
  Tensor full_gradient(Parameter& parameter, Stream& stream);
  // Whole gradient likewise, in the gradient's dtype; zeros where nothing was added. Ends reductions first.
  // Collective, refusals are agreed, as in clip_gradients.
  Tensor gather_gradient(const Parameter& parameter, Stream& stream);
  // Values of the global shape, or of this rank's box alone, in any floating dtype, into the own shard. Each rank may
  // give either. Collective; goes through the version gate.
  void assign(Parameter& parameter, const Tensor& values, Stream& stream);
  // MISMATCH, on all ranks: values that replicas hold are not equal. Collective.
  void check_replicas(Stream& stream);
  MemoryUse memory() const;
  // Part of MemoryUse::optimizer, or ::host, for as long as the result lives.
  struct OptimizerBytes {
    uint64_t device, host;
  };
  std::shared_ptr<const OptimizerBytes> count_optimizer(uint64_t device, uint64_t host = 0);

 private:
  ModelParts& parts_;
  ModelRunner& runner_;
  std::vector<std::weak_ptr<const OptimizerBytes>> optimizers_;
};

}  // namespace gangway
