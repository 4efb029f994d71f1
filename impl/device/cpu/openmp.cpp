#include "device/cpu/openmp.h"

#include <dlfcn.h>

namespace gangway::cpu {
namespace {

struct OpenMp {
  int (*get_max_threads)();
  void (*set_num_threads)(int);
};

template <typename Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// The functions are looked up when they are first needed, not by weak references: mold resolves a weak
// reference to null unless the program itself names the library that has it, and a program that links
// libgangway.a names oneDNN's library only. RTLD_DEFAULT includes the libraries that were loaded together
// with this one, also where Python or dlopen has loaded it with RTLD_LOCAL.
const OpenMp& openmp() {
  static const OpenMp found{find<int (*)()>("omp_get_max_threads"),
                            find<void (*)(int)>("omp_set_num_threads")};
  return found;
}

}  // namespace

int set_openmp_threads(int threads) noexcept {
  const OpenMp& omp = openmp();
  if (omp.get_max_threads == nullptr || omp.set_num_threads == nullptr) return 0;
  const int before = omp.get_max_threads();
  if (before != threads) omp.set_num_threads(threads);
  return before;
}

}  // namespace gangway::cpu
