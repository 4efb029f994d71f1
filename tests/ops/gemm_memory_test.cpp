// Products where the process may have no more memory.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <new>

#include "ops/ops_testing.h"

namespace gangway {
namespace {

using namespace ops_testing;

// The bytes of address space that the process has.
size_t address_space() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  size_t pages = 0;
  if (file == nullptr || std::fscanf(file, "%zu", &pages) != 1) return 0;
  std::fclose(file);
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Makes the first product of a process that may have `rest` bytes more. Returns what waitpid gives.
int status_of_first_product(size_t rest) {
  const pid_t child = fork();
  if (child == 0) {
    Bench bench(cpu::processor_isa());
    const Tensor a = random_tensor(bench, DType::f32, {64, 96}, 1),
                 b = random_tensor(bench, DType::f32, {96, 80}, 2);
    GemmArgs args;
    args.a = a, args.b = b, args.c = bench.empty(DType::f32, {64, 80});
    const rlimit limit = {address_space() + rest, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    int code = 0;
    try {
      bench.ops->gemm(args, bench.stream());
    } catch (const std::bad_alloc&) {
      code = 1;
    } catch (const Error& error) {
      code = error.code() == Code::out_of_memory ? 1 : 3;
    }
    setrlimit(RLIMIT_AS, &all);
    bench.ops->gemm(args, bench.stream());  // works as soon as there is memory
    _exit(code);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// oneDNN's generator of code ended the process by SIGSEGV.
TEST(GemmMemory, AProductWithoutMemoryForItsCodeIsRefusedAndWorksLater) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs address space of its own";
#endif
  for (const size_t kib : {0, 16, 64, 256, 1024, 4096, 15000, 20000, 200000}) {
    const int status = status_of_first_product(kib << 10);
    EXPECT_TRUE(WIFEXITED(status)) << kib << " KiB: signal " << WTERMSIG(status);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), kib < 16384 ? 1 : 0) << kib << " KiB";
    }
  }
}

}  // namespace
}  // namespace gangway
