#include "train/replay.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/interrupt.h"
#include "tensor/host_view.h"

namespace gangway {
namespace {

// Reads the tensor in pieces, so that a gradient of a gigabyte takes no copy of its size.
uint64_t hash_of(const Tensor& tensor, Stream& stream) {
  constexpr int64_t kPieceElements = 1 << 20;
  const Tensor flat = tensor.reshape(Shape{tensor.count()});
  uint64_t hash = 0;
  for (int64_t at = 0; at < flat.count(); at += kPieceElements) {
    poll_interrupt_throttled();
    const Tensor piece = flat.slice(0, at, std::min(at + kPieceElements, flat.count()));
    const Tensor host = read_on_host(piece, stream);
    hash = XXH3_64bits_withSeed(host.raw(), host.bytes(), hash);
  }
  return hash;
}

}  // namespace

StepBits::StepBits(Model& model, double loss, Stream& stream) : loss_(loss) {
  if (model.device().kind() == DeviceKind::meta) return;
  for (const NamedParameter& named : model.inspect().parameters()) {
    const Parameter& p = *named.parameter;
    if (!p.trainable || p.shard_grad == nullptr || !p.shard_grad->written) continue;
    gradients_.push_back({named.name, hash_of(p.shard_grad->tensor, stream)});
  }
}

void StepBits::check(const StepBits& again, int rank) const {
  std::string what;
  for (size_t i = 0; i < gradients_.size() && what.empty(); ++i)
    if (i >= again.gradients_.size() || gradients_[i].hash != again.gradients_[i].hash)
      what = "gradient of " + gradients_[i].name;
  if (what.empty() && std::bit_cast<uint64_t>(loss_) != std::bit_cast<uint64_t>(again.loss_)) what = "loss";
  if (what.empty()) return;
  fail(Code::mismatch, "replay: rank ", rank, " computed the step twice, and the ", what,
       " has other bits the second time: a processor or memory of this host computes wrongly, or a module of "
       "your own keeps a state between its calls");
}

}  // namespace gangway
