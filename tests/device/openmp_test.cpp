// The pool keeps OpenMP, which oneDNN brings, to one thread in each task. This program names oneDNN's library
// and not that of OpenMP, as a program that links libgangway.a does. Mold links it where it is installed.
#include <dlfcn.h>
#include <dnnl.h>
#include <gtest/gtest.h>

#include <atomic>

#include "device/cpu/pool.h"

namespace gangway::cpu {
namespace {

TEST(OpenMp, HasOneThreadInEveryTaskAndTheCallersNumberReturns) {
  ASSERT_NE(dnnl_version(), nullptr);  // an unused library would not be linked
  const auto get_max_threads = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  const auto set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (get_max_threads == nullptr || set_num_threads == nullptr)
    GTEST_SKIP() << "this oneDNN was built without OpenMP";
  for (const int threads : {1, 2, 3}) {
    Pool pool(threads);
    for (const int own : {1, 3}) {
      set_num_threads(own);
      for (const size_t count : {0u, 1u, 3u, 1000u}) {
        std::atomic<int> wrong{0};
        pool.run(count, 1, [&](int, size_t, size_t) {
          if (get_max_threads() != 1) ++wrong;
        });
        EXPECT_EQ(wrong, 0) << threads << " threads, " << count << " items";
        EXPECT_EQ(get_max_threads(), own);
      }
    }
  }
#ifndef GANGWAY_TEST_LINKED_BY_MOLD
  GTEST_SKIP() << "mold is not installed; the facts hold in a program of the usual linker";
#endif
}

}  // namespace
}  // namespace gangway::cpu
