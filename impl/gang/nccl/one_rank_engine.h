// The data engine of a single rank on a CUDA device. It copies on the caller's stream and needs no NCCL.
//
// Thread rule: an Engine's (gang/engine.h).
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/nccl/arithmetic.h"
#include "gang/rank.h"

namespace gangway::nccl {

std::shared_ptr<Engine> make_one_rank_engine(const std::shared_ptr<Rank>& owner, Add add);

}  // namespace gangway::nccl
