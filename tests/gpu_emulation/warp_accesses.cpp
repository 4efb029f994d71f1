#include "gpu_emulation/warp_accesses.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

namespace gpu_emulation {
namespace {

constexpr uintptr_t kSector = 32, kWord = 4, kBanks = 32;

struct Watch {
  std::atomic<bool> on{false};
  std::mutex mutex;
  WarpTraffic sum;
};
Watch& all() {
  static auto* const watch = new Watch;
  return *watch;
}

}  // namespace

void watch_warps() {
  const std::lock_guard lock(all().mutex);
  all().sum = {};
  all().on = true;
}
WarpTraffic take_warps() {
  const std::lock_guard lock(all().mutex);
  all().on = false;
  return all().sum;
}

bool WarpAccesses::watched() { return all().on.load(std::memory_order_relaxed); }

void WarpAccesses::note(int lane, bool shared, uintptr_t at, size_t bytes, AccessKind kind,
                        const void* code) {
  auto& [executed, accesses] = warps_[static_cast<size_t>(lane / kWarp)].instructions[{code, kind}];
  const size_t nth = executed[static_cast<size_t>(lane % kWarp)]++;
  if (nth >= accesses.size()) accesses.resize(nth + 1);
  accesses[nth].shared = shared;
  accesses[nth].parts.push_back({lane, at, bytes});
}

void WarpAccesses::count(Access& access, WarpTraffic& sum) {
  if (access.parts.empty()) return;
  std::sort(access.parts.begin(), access.parts.end(),
            [](const Part& a, const Part& b) { return a.lane < b.lane; });
  const uintptr_t unit = access.shared ? kWord : kSector;
  std::set<uintptr_t> bytes;
  // A warp moves at most 128 bytes of shared memory at once: accesses of 8 or 16 bytes by halves or quarters.
  const size_t at_once =
      access.shared ? std::max<size_t>(1, kWarp * kWord / std::max<size_t>(kWord, access.parts[0].bytes))
                    : kWarp;
  uint64_t needed = 0, least = 0;
  for (size_t first = 0; first < access.parts.size(); first += at_once) {
    std::set<uintptr_t> units;
    for (size_t i = first; i < std::min(first + at_once, access.parts.size()); ++i)
      for (uintptr_t at = access.parts[i].at; at < access.parts[i].at + access.parts[i].bytes; ++at) {
        units.insert(at / unit);
        bytes.insert(at);
      }
    std::array<uint64_t, kBanks> words{};
    for (const uintptr_t word : units) ++words[word % kBanks];
    needed += access.shared ? *std::max_element(words.begin(), words.end()) : units.size();
    if (access.shared) ++least;
  }
  if (access.shared) {
    ++sum.shared_accesses;
    sum.passes += needed;
    sum.least_passes += least;
  } else {
    ++sum.global_accesses;
    sum.sectors += needed;
    sum.least_sectors += (bytes.size() + kSector - 1) / kSector;
  }
}

void WarpAccesses::flush(size_t warp) {
  const auto found = warps_.find(warp);
  if (found == warps_.end()) return;
  WarpTraffic sum;
  for (auto& [key, executions] : found->second.instructions)
    for (Access& access : executions.second) count(access, sum);
  warps_.erase(found);
  const std::lock_guard lock(all().mutex);
  WarpTraffic& total = all().sum;
  total.global_accesses += sum.global_accesses;
  total.sectors += sum.sectors;
  total.least_sectors += sum.least_sectors;
  total.shared_accesses += sum.shared_accesses;
  total.passes += sum.passes;
  total.least_passes += sum.least_passes;
}

void WarpAccesses::flush_all() {
  while (!warps_.empty()) flush(warps_.begin()->first);
}

}  // namespace gpu_emulation
