// Ops of the meta device. It checks shapes and takes the temporaries that a real run takes, but computes
// nothing.
//
// Thread rule: that of Ops.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace gangway::meta {

std::unique_ptr<Ops> make_meta_ops(const std::shared_ptr<Device>& device);

}  // namespace gangway::meta
