// The tables of kernels, one for each instruction set. Only fold*.cpp include this header.
#pragma once

#include "gang/kernels/fold.h"

namespace gangway::host {

namespace portable {
extern const FoldKernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const FoldKernels kKernels;
}
#endif

}  // namespace gangway::host
