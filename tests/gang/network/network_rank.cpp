// One rank of a gang that its environment describes, on one of several hosts. Exit status 0: all was right;
// 10 + the error's code otherwise, its text on stderr.
//
//   network_rank matrix     every operation; prints the engine's name
//   network_rank small      the same, with short inputs only
//   network_rank long       calls of several chunks
//   network_rank mismatch   every kind of calls that differ
//   network_rank late       a sum to which the last rank does not come
//   network_rank sums       sums until a call fails; prints "began" before the first
//   network_rank bits       prints a hash of the results of reductions of long random inputs
//   network_rank storm      calls of every kind until rank 0 gets SIGTERM, in an order that GANGWAY_TEST_SEED
//                           gives; a rank that gets SIGUSR1 aborts the gang. Prints "began" before the first
//                           call, and "failed at" with the clock's nanoseconds when one fails
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "base/log.h"
#include "gang/gang_matrix.h"
#include "gang/network/mismatches.h"
#include "gang/sum_of.h"
#include "gang/works_in_flight.h"

namespace gangway::test {
namespace {

// FNV-1a.
uint64_t add_to_hash(uint64_t hash, const void* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3ull;
  return hash;
}

// The mean of inputs that differ by rank, scattered and gathered.
template <typename T>
std::vector<T> mean_of_parts(Gang& gang, const std::vector<T>& x, DType dtype) {
  const auto size = static_cast<size_t>(gang.size());
  std::vector<T> in(x.size() * size), part(x.size()), all(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = x[(i * 7 + static_cast<size_t>(gang.rank())) % x.size()];
  Collective c;
  c.op = CollectiveOp::reduce_scatter;
  c.in = in.data();
  c.out = part.data();
  c.count = x.size();
  c.dtype = dtype;
  c.reduce = Reduce::mean;
  gang.run_now(Channel::user, c);
  c.op = CollectiveOp::all_gather;
  c.in = part.data();
  c.out = all.data();
  c.reduce = Reduce::none;
  gang.run_now(Channel::user, c);
  return all;
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
    const std::vector<T> parts = mean_of_parts(gang, x, dtype);
    hash = add_to_hash(hash, parts.data(), parts.size() * sizeof(T));
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

void late(Gang& gang) {
  std::vector<float> x(200'000, 1);
  gang.run_now(Channel::user, sum_of(x));
  while (gang.rank() == gang.size() - 1 && !gang.error()) usleep(10'000);  // the others tell it
  if (gang.rank() != 0) usleep(50'000);  // the deadline of rank 0 comes first
  gang.run_now(Channel::user, sum_of(x));
}

volatile sig_atomic_t is_to_end = 0;
Gang* storm_gang = nullptr;

void check_value(float value, float expected, const char* call) {
  if (value != expected) fail(Code::internal, call, " gave ", value, ", not ", expected);
}

// Makes one call, the same on all ranks, whose lengths are from one element to several chunks.
void make_call(Gang& gang, std::mt19937& random) {
  const auto size = static_cast<size_t>(gang.size()), rank = static_cast<size_t>(gang.rank());
  const auto ranks = static_cast<float>(size);
  const int kind = static_cast<int>(random() % 7);
  const size_t count = random() % 2 == 0 ? 1 + random() % 3000 : 1 + random() % 300'000;
  std::vector<float> x(count, 1), all(count * size, 1);
  Collective c;
  c.in = x.data();
  c.out = all.data();
  c.count = count;
  switch (kind) {
    case 0: {
      gang.run_now(Channel::user, sum_of(x));
      return check_value(x[count - 1], ranks, "all_reduce");
    }
    case 1: {
      c.op = CollectiveOp::all_gather;
      x.assign(count, static_cast<float>(rank));
      gang.run_now(Channel::user, c);
      return check_value(all[count * size - 1], ranks - 1, "all_gather");
    }
    case 2: {
      c.op = CollectiveOp::reduce_scatter;
      c.reduce = Reduce::sum;
      c.in = all.data();
      c.out = x.data();
      gang.run_now(Channel::user, c);
      return check_value(x[count - 1], ranks, "reduce_scatter");
    }
    case 3: {
      c.op = CollectiveOp::broadcast;
      c.peer = static_cast<int>(random() % size);
      x.assign(count, static_cast<float>(rank));
      gang.run_now(Channel::user, c);
      return check_value(all[count - 1], static_cast<float>(c.peer), "broadcast");
    }
    case 4: {  // around a ring
      Collective receive = c;
      c.op = CollectiveOp::send;
      c.out = nullptr;
      c.peer = static_cast<int>((rank + 1) % size);
      receive.op = CollectiveOp::recv;
      receive.in = nullptr;
      receive.peer = static_cast<int>((rank + size - 1) % size);
      x.assign(count, static_cast<float>(rank));
      const Collective both[] = {c, receive};
      gang.run_now(Channel::user, both);
      return check_value(all[count - 1], static_cast<float>(receive.peer), "recv");
    }
    case 5: {  // two channels at a time
      std::vector<float> y(1000, 1);
      const WorkPtr one = gang.run(Channel::tp, sum_of(x)), other = gang.run(Channel::replicate, sum_of(y));
      other->wait(Deadline::never());
      one->wait(Deadline::never());
      return check_value(x[count - 1] + y[999], 2 * ranks, "two all_reduces");
    }
    default: {
      const GangPtr child = gang.duplicate("child");
      child->run_now(Channel::user, sum_of(x));
      return check_value(x[count - 1], ranks, "a child's all_reduce");
    }
  }
}

void storm(Gang& gang) {
  storm_gang = &gang;
  signal(SIGTERM, [](int) { is_to_end = 1; });
  signal(SIGUSR1, [](int) { storm_gang->request_abort("the test wants it"); });
  const char* const seed = std::getenv("GANGWAY_TEST_SEED");
  std::mt19937 random(seed == nullptr ? 1u : static_cast<unsigned>(std::atoi(seed)));
  std::printf("began\n");
  std::fflush(stdout);
  try {
    for (float ends = 0; ends == 0;) {
      make_call(gang, random);
      std::vector<float> all_end(1, static_cast<float>(is_to_end));
      gang.run_now(Channel::control, sum_of(all_end));
      ends = all_end[0];
    }
  } catch (const Error&) {
    std::printf("failed at %lld\n",
                static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
    throw;
  }
}

// The other ranks wait in the shutdown already.
void come_late(Gang& gang) {
  std::printf("began\n");
  std::fflush(stdout);
  if (gang.rank() != 0) usleep(1'500'000);
}

void run(const std::string& what) {
  GangOptions options;
  options.threads = 1;
  options.timeout_ms = what == "late" ? 3'000 : what == "storm" ? 20'000 : 60'000;
  options.arena_bytes = uint64_t{256} << 20;
  const GangPtr gang = Gang::create(options);
  if (what == "sums") return sums(*gang);
  if (what == "matrix")
    matrix(*gang);
  else if (what == "small")
    small_matrix(*gang);
  else if (what == "end")
    come_late(*gang);
  else if (what == "in_flight")
    dependent_works(*gang);
  else if (what == "long")
    several_chunks(*gang);
  else if (what == "mismatch")
    every_mismatch_is_told(*gang);
  else if (what == "storm")
    storm(*gang);
  else if (what == "late")
    late(*gang);
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
