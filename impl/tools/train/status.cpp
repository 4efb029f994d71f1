#include "tools/train/status.h"

namespace gangway::train {

Exit exit_of(gw_status status) {
  switch (status) {
    case GW_OK: return Exit::done;
    case GW_E_INVALID_ARGUMENT:
    case GW_E_NOT_SUPPORTED:
    case GW_E_INVALID_STATE:
    case GW_E_NOT_FOUND:
    case GW_E_MISMATCH: return Exit::usage;
    case GW_E_CORRUPT: return Exit::data;
    case GW_E_GANG:
    case GW_E_PEER_LOST:
    case GW_E_TIMEOUT:
    case GW_E_ABORTED: return Exit::peer;
    case GW_E_OUT_OF_MEMORY: return Exit::memory;
    case GW_E_IO: return Exit::io;
    default: return Exit::internal;
  }
}

void check(gw_status status) {
  if (status != GW_OK) throw Failed(exit_of(status), gw_last_error_text(), /*is_of_all=*/false);
}

}  // namespace gangway::train
