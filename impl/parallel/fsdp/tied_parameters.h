// Parameters that stages of several pipeline ranks use. The rank of the first stage owns the parameter: it reduces, clips,
// steps and saves it. The others compute with copies of the same layout over the other axes. The copies' gradients are
// moved to the owner when gradients are finished, its values to the copies when an update ends.
//
// Thread rule: one thread at a time; add_gradients and send_values are collective over the ranks that use one.
#pragma once

#include <vector>

#include "gang/gang.h"
#include "nn/parameter.h"

namespace gangway {

struct TiedParameter {
  ParameterPtr original;
  ParameterPtr copy;       // this rank's; null: it owns the original, or does not use it
  std::vector<int> ranks;  // of the pp gang; the owner first
};

class TiedParameters {
 public:
  // `pp`: all ranks of the pipeline. After the parameters have their storage.
  TiedParameters(Ops& ops, GangPtr pp, std::vector<TiedParameter> tied);

  // Before a pass: gradients of the copies will be made if those of the originals are.
  void begin();
  // Once after begin: the owner's local gradient gets the copies', which are empty then.
  void add_gradients(Stream& stream);
  void drop_gradients() { begun_ = false; }
  void send_values(Stream& stream);  // collective over pp
  size_t bytes() const;

 private:
  bool owns(const TiedParameter& tied) const { return tied.ranks[0] == pp_->rank(); }
  Collective record(CollectiveOp op, const Tensor& tensor, int peer) const;
  Tensor on_device(const Tensor& tensor) const;
  Tensor to_send(const Tensor& tensor, Stream& stream);  // a copy stays in sent_
  void wait(const std::vector<WorkPtr>& works, Stream& stream) const;

  Ops& ops_;
  const GangPtr pp_;
  const std::vector<TiedParameter> tied_;
  std::vector<Tensor> rooms_;  // of each: what the owner receives a gradient in; absent elsewhere
  std::vector<Tensor> sent_;   // copies of what rests on the host, until they are sent
  bool begun_ = false, opened_ = false;
};

}  // namespace gangway
