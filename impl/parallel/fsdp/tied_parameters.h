// Parameters that stages of several pipeline ranks use, such as a tied embedding. The rank of the first such
// stage owns the parameter: it reduces, clips, updates and saves it. The other ranks compute with copies,
// which have the same layout over the other axes. The gradients of the copies go to the owner when gradients
// are finished, and the owner's values go to the copies when an update ends.
//
// Thread rule: one thread at a time; add_gradients is collective over the ranks that use a tied parameter,
// send_values over all pipeline ranks.
#pragma once

#include <vector>

#include "gang/gang.h"
#include "nn/parameter.h"

namespace gangway {

struct TiedParameter {
  ParameterPtr original;
  ParameterPtr copy;       // this rank's copy; null: this rank owns the original, or does not use it
  std::vector<int> ranks;  // the ranks of the pp gang that use it, the owner first
};

class TiedParameters {
 public:
  // `pp` is the gang of all pipeline ranks. The parameters must have their storage already.
  TiedParameters(Ops& ops, GangPtr pp, std::vector<TiedParameter> tied);

  // Call before a pass: copies get gradients if and only if their originals do.
  void begin();
  // Adds the copies' gradients to the owner's local gradient and empties them. Does nothing unless begin()
  // came before.
  void add_gradients(Stream& stream);
  void drop_gradients() { begun_ = false; }
  void send_values(Stream& stream);
  size_t bytes() const;

 private:
  bool owns(const TiedParameter& tied) const { return tied.ranks[0] == pp_->rank(); }
  Collective record(CollectiveOp op, const Tensor& tensor, int peer) const;
  Tensor on_device(const Tensor& tensor) const;
  Tensor to_send(const Tensor& tensor, Stream& stream);  // keeps a copy on the device in sent_
  void wait(const std::vector<WorkPtr>& works, Stream& stream) const;

  Ops& ops_;
  const GangPtr pp_;
  const std::vector<TiedParameter> tied_;
  std::vector<Tensor> rooms_;  // for each: where the owner receives a gradient; absent on other ranks
  std::vector<Tensor> sent_;   // device copies of offloaded tensors, until they are sent
  bool begun_ = false, opened_ = false;
};

}  // namespace gangway
