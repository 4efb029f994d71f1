// Ops of the meta device: checks shapes and takes the temporaries that a run takes, computes nothing.
// Thread rule: that of Ops.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace gangway::meta {

std::unique_ptr<Ops> make_meta_ops(const std::shared_ptr<Device>& device);

}  // namespace gangway::meta
