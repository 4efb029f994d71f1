// One rank of a gang that its environment describes, on one of several hosts. Exit status 0: all was right;
// 10 + the error's code otherwise, its text on stderr.
//
//   network_rank matrix     every operation; prints the engine's name
//   network_rank small      the same, with short inputs only
//   network_rank long       calls of several chunks
//   network_rank sums       sums until a call fails; prints "began" before the first
//   network_rank bits       prints a hash of the results of reductions of long random inputs
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>

#include "base/log.h"
#include "gang/gang_matrix.h"
#include "gang/sum_of.h"

namespace gangway::test {
namespace {

// FNV-1a.
uint64_t add_to_hash(uint64_t hash, const void* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3ull;
  return hash;
}

template <typename T>
uint64_t hash_of_reductions(Gang& gang, DType dtype) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const size_t count : {size_t{1}, size_t{777}, size_t{100'003}}) {
    std::mt19937 random(static_cast<unsigned>(gang.rank()) + 1);
    std::uniform_real_distribution<float> values(-100, 100);
    std::vector<T> x(count);
    for (T& one : x) {
      if constexpr (sizeof(T) == 2)
        one = to_bf16(values(random));
      else
        one = values(random);
    }
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.in = c.out = x.data();
    c.count = count;
    c.dtype = dtype;
    c.reduce = Reduce::mean;
    gang.run_now(Channel::user, c);
    hash = add_to_hash(hash, x.data(), count * sizeof(T));
  }
  return hash;
}

void sums(Gang& gang) {
  std::vector<float> x(200'000, 1);
  std::printf("began\n");
  std::fflush(stdout);
  for (;;) {
    gang.run_now(Channel::user, sum_of(x));
    x.assign(x.size(), 1);
    usleep(1000);
  }
}

void run(const std::string& what) {
  GangOptions options;
  options.threads = 1;
  options.timeout_ms = 60'000;
  options.arena_bytes = uint64_t{256} << 20;
  const GangPtr gang = Gang::create(options);
  if (what == "sums") return sums(*gang);
  if (what == "matrix")
    matrix(*gang);
  else if (what == "small")
    small_matrix(*gang);
  else if (what == "long")
    several_chunks(*gang);
  else if (what != "bits")
    fail(Code::invalid_argument, "network_rank: \"", what, "\" is no test");
  else
    std::printf("bits %016llx %016llx\n",
                static_cast<unsigned long long>(hash_of_reductions<float>(*gang, DType::f32)),
                static_cast<unsigned long long>(hash_of_reductions<bf16_t>(*gang, DType::bf16)));
  std::printf("engine %s\n", gang->engine_name());
  for (const LogLine& line : log_lines(0)) std::printf("%s\n", line.message.c_str());
  gang->shutdown(60'000);
}

}  // namespace
}  // namespace gangway::test

int main(int count, char** arguments) {
  try {
    gangway::test::run(count > 1 ? arguments[1] : "small");
    return 0;
  } catch (const gangway::Error& error) {
    std::fprintf(stderr, "%s: %s (peer %d)\n", gangway::name(error.code()), error.what(), error.peer);
    return 10 + static_cast<int>(error.code());
  }
}
