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

void product(Bench& bench, int64_t m) {
  GemmArgs args;
  args.a = random_tensor(bench, DType::f32, {m, 96}, 1);
  args.b = random_tensor(bench, DType::f32, {96, 80}, 2);
  args.c = bench.empty(DType::f32, {m, 80});
  bench.ops->gemm(args, bench.stream());
}

// The bytes of address space that the process has.
size_t address_space() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  size_t pages = 0;
  if (file == nullptr || std::fscanf(file, "%zu", &pages) != 1) return 0;
  std::fclose(file);
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// oneDNN's generator of code ended the process by SIGSEGV.
TEST(GemmMemory, AProductOfANewShapeWithoutMemoryIsBadAllocAndAKnownOneRuns) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs address space of its own";
#endif
  const pid_t child = fork();
  if (child == 0) {
    Bench bench(cpu::processor_isa());
    product(bench, 64);
    int failed = 0;
    for (const size_t rest : {size_t{0}, size_t{64} << 10, size_t{1} << 20, size_t{4} << 20}) {
      const rlimit limit = {address_space() + rest, RLIM_INFINITY};
      if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
      for (int64_t m = 65; m < 97; ++m) {
        try {
          product(bench, m);
        } catch (const std::bad_alloc&) {
          ++failed;
        } catch (const Error& error) {
          failed += error.code() == Code::out_of_memory ? 1 : 0;
        }
      }
    }
    const rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &all);
    product(bench, 64);
    _exit(failed > 0 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gangway
