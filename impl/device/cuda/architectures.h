// The GPUs for which this module has kernels.
//
// Thread rule: pure functions.
#pragma once

namespace gangway::cuda {

// The module has binaries for 8.x, 9.0 and 10.x, and PTX of the newest, which the driver compiles for later
// GPUs.
inline constexpr char kArchitectures[] = "sm_80 and newer";
constexpr bool has_kernels_for(int architecture) { return architecture >= 80; }

}  // namespace gangway::cuda
