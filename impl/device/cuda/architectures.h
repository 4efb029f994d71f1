// For which GPUs this module has kernels. Thread rule: pure functions.
#pragma once

namespace gangway::cuda {

// Binaries for 8.x, 9.0 and 10.x, and PTX of the newest one, which the driver compiles for what is newer.
inline constexpr char kArchitectures[] = "sm_80 and newer";
constexpr bool has_kernels_for(int architecture) { return architecture >= 80; }

}  // namespace gangway::cuda
