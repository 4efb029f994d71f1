// barrier: over when all have arrived.
#include "gang/host/algorithms/table.h"

namespace gangway::host {

const Algorithm kBarrier{};

}  // namespace gangway::host
