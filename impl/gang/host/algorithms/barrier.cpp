// barrier: over when all have arrived.
#include "gang/host/algorithm.h"

namespace gangway::host {

const Algorithm kBarrier{};

}  // namespace gangway::host
