#include "tools/check_gang.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "gang/byte_gather.h"
#include "gang/gang.h"

namespace gangway::tools {
namespace {

constexpr int kTimes = 20;                  // short messages of one pair
constexpr size_t kBytes = size_t{4} << 20;  // of a long message
constexpr double kSlow = 0.5;               // of the median bandwidth

struct Pair {
  double latency_us = 0, megabytes_per_s = 0;
};

double seconds(Deadline::Clock::time_point since) {
  return std::chrono::duration<double>(Deadline::Clock::now() - since).count();
}

void transfer(Gang& gang, CollectiveOp op, int peer, std::vector<unsigned char>& bytes, size_t count) {
  Collective c;
  c.op = op;
  c.in = c.out = bytes.data();
  c.peer = peer;
  c.count = count;
  c.dtype = DType::u8;
  gang.run_now(Channel::user, c);
}

void gather(Gang& gang, const void* mine, size_t bytes, void* all) {
  gang.run_now(Channel::user, gather_of_bytes(mine, all, bytes));
}

// Both ranks of a pair call it. The lower one measures.
Pair measure(Gang& gang, int peer, std::vector<unsigned char>& bytes) {
  const bool first = gang.rank() < peer;
  const auto there_and_back = [&](size_t count) {
    transfer(gang, first ? CollectiveOp::send : CollectiveOp::recv, peer, bytes, count);
    transfer(gang, first ? CollectiveOp::recv : CollectiveOp::send, peer, bytes, count);
  };
  there_and_back(1);
  auto began = Deadline::Clock::now();
  for (int i = 0; i < kTimes; ++i) there_and_back(1);
  Pair pair;
  pair.latency_us = seconds(began) / (2 * kTimes) * 1e6;
  began = Deadline::Clock::now();
  there_and_back(kBytes);
  pair.megabytes_per_s = 2 * static_cast<double>(kBytes) / seconds(began) / 1e6;
  return pair;
}

// One pair at a time, so that none disturbs another.
std::vector<Pair> measure_pairs(Gang& gang) {
  const auto size = static_cast<size_t>(gang.size());
  std::vector<Pair> mine(size), all(size * size);
  std::vector<unsigned char> bytes(kBytes, 1);
  for (int a = 0; a < gang.size(); ++a)
    for (int b = a + 1; b < gang.size(); ++b) {
      if (gang.rank() == a) mine[static_cast<size_t>(b)] = measure(gang, b, bytes);
      if (gang.rank() == b) measure(gang, a, bytes);
      gang.barrier();
    }
  gather(gang, mine.data(), size * sizeof(Pair), all.data());
  return all;
}

// Returns the name of each rank's host.
std::vector<std::string> names_of_hosts(Gang& gang) {
  constexpr size_t kName = 64;
  std::vector<char> mine(kName), all(kName * static_cast<size_t>(gang.size()));
  gethostname(mine.data(), kName - 1);
  gather(gang, mine.data(), kName, all.data());
  std::vector<std::string> names;
  for (size_t r = 0; r < all.size() / kName; ++r) names.emplace_back(all.data() + r * kName);
  return names;
}

std::string table(const std::vector<Pair>& pairs, const std::vector<std::string>& names) {
  const size_t size = names.size();
  std::vector<double> speeds;
  for (size_t a = 0; a < size; ++a)
    for (size_t b = a + 1; b < size; ++b) speeds.push_back(pairs[a * size + b].megabytes_per_s);
  std::sort(speeds.begin(), speeds.end());
  const double slow = kSlow * speeds[speeds.size() / 2];
  std::string out;
  for (size_t a = 0; a < size; ++a)
    for (size_t b = a + 1; b < size; ++b) {
      const Pair& pair = pairs[a * size + b];
      char line[120];
      std::snprintf(line, sizeof line, "  ranks %zu and %zu: %9.1f us %9.0f MB/s", a, b, pair.latency_us,
                    pair.megabytes_per_s);
      out += line;
      if (pair.megabytes_per_s < slow)
        out += text("  slow: ", names[a], " - ", names[b], " has less than half of the median");
      out += "\n";
    }
  return out;
}

}  // namespace

std::string check_gang() {
  GangOptions options;
  options.threads = 1;
  const GangPtr gang = Gang::create(options);
  if (gang->size() == 1) return "one rank: no launcher has started several\n";
  std::vector<float> ones(1 << 20, 1);
  Collective sum;
  sum.op = CollectiveOp::all_reduce;
  sum.in = sum.out = ones.data();
  sum.count = ones.size();
  sum.reduce = Reduce::sum;
  const auto began = Deadline::Clock::now();
  gang->run_now(Channel::user, sum);
  const double took = seconds(began);
  for (const float x : ones)
    if (x != static_cast<float>(gang->size()))
      fail(Code::internal, "a sum of ones over ", gang->size(), " ranks gave ", x);
  const std::vector<std::string> names = names_of_hosts(*gang);
  const std::vector<Pair> pairs = measure_pairs(*gang);
  gang->shutdown(60'000);
  if (gang->rank() != 0) return "";
  std::string places;
  for (size_t r = 0; r < names.size(); ++r) places += text("  rank ", r, " on ", names[r], "\n");
  char line[120];
  std::snprintf(line, sizeof line, "an all-reduce of 4 MiB: %.1f ms\n", took * 1e3);
  return text("engine ", gang->engine_name(), "\n", places, line,
              "latency of a byte, and bandwidth of 4 MiB:\n", table(pairs, names));
}

}  // namespace gangway::tools
