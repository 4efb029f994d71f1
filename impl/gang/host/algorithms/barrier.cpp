// barrier: the call is over when all ranks have arrived.
#include "gang/host/algorithms/table.h"

namespace gangway::host {

const Algorithm kBarrier{};

}  // namespace gangway::host
