// Access to the parameters, values and gradients of a model, and to its memory use.
//
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/memory_use.h"
#include "parallel/model/runner.h"

namespace gangway {

class ModelInspector {
 public:
  ModelInspector(ModelParts& parts, ModelRunner& runner) : parts_(parts), runner_(runner) {}

  const std::vector<NamedParameter>& parameters() const { return parts_.parameters; }
  std::vector<NamedParameter> names() const;  // includes the aliases of tied parameters
  // Returns the parameters as a save writes them. The config.json of a model that computes says what it ties,
  // so that its files have a tied parameter once. Of a model of shard groups nothing else tells, so that its
  // files have every name.
  std::vector<NamedParameter> saved() const;
  const NamedParameter& parameter(const std::string& name) const;  // also by alias; NOT_FOUND
  // Returns the full value in the master's dtype on every rank. Collective.
  Tensor gather(const Parameter& parameter, Stream& stream);
  // Returns this rank's shard of the gradient, which is zero if nothing was added (the memory of shard_grad
  // is undefined then). Local.
  Tensor gradient(Parameter& parameter, Stream& stream);
  // Returns the full gradient of this rank's backward, or an absent tensor if there is none at present. It is
  // zero if nothing was added. Local.
  Tensor full_gradient(Parameter& parameter, Stream& stream);
  // Waits for all reductions and returns the full reduced gradient in the gradient's dtype on every rank,
  // zero if nothing was added. Collective; refusals are agreed.
  Tensor gather_gradient(const Parameter& parameter, Stream& stream);
  // Sets the values. Each rank gives either the full tensor or only its own shard, in any floating dtype.
  // Collective; waits for the version gate.
  void assign(Parameter& parameter, const Tensor& values, Stream& stream);
  // MISMATCH, on all ranks: the values of replicas differ. Collective.
  void check_replicas(Stream& stream);
  // The norms of the gradients of the last step that computed them, in the order of parameters();
  // INVALID_STATE: there is none.
  const std::vector<double>& gradient_norms() const;
  void keep_gradient_norms(std::vector<double> norms) { gradient_norms_ = std::move(norms); }
  MemoryUse memory() const;
  // Counts the bytes of an optimizer in MemoryUse::optimizer and MemoryUse::host for as long as the result
  // lives.
  struct OptimizerBytes {
    uint64_t device, host;
  };
  std::shared_ptr<const OptimizerBytes> count_optimizer(uint64_t device, uint64_t host = 0);
  // Counts host memory of another use, such as the copy of a checkpoint, in MemoryUse::host likewise.
  std::shared_ptr<const OptimizerBytes> count_host(uint64_t bytes) { return count_optimizer(0, bytes); }

 private:
  ModelParts& parts_;
  ModelRunner& runner_;
  std::vector<std::weak_ptr<const OptimizerBytes>> optimizers_;
  std::optional<std::vector<double>> gradient_norms_;
};

}  // namespace gangway
