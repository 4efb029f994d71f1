// Apart from interfaces.cpp, because the core changes no variable of the environment and does not link this.
#include <cstdlib>

#include "base/interfaces.h"

namespace gangway {

// "=eth0" is NCCL's form for exactly eth0; "eth0" would allow eth01, too.
void tell_nccl(const std::string& interface) {
  if (!interface.empty()) setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/0);
}

}  // namespace gangway
