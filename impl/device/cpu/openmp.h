// The calling thread's number of OpenMP threads. oneDNN brings the OpenMP runtime; this library neither
// compiles with OpenMP nor links it.
//
// Thread rule: any thread; each has a number of its own.
#pragma once

namespace gangway::cpu {

// Sets how many threads OpenMP uses when the calling thread starts a parallel region. Returns the number
// before, or 0 if the process has no OpenMP runtime, as with an oneDNN that was built without it.
int set_openmp_threads(int threads) noexcept;

}  // namespace gangway::cpu
