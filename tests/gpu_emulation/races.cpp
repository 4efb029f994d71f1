#include "gpu_emulation/races.h"

#include <algorithm>

namespace gpu_emulation {
namespace {

constexpr size_t kMostPages = 4096;  // that are kept from one launch to the next: 160 MB

}  // namespace

void Races::begin_launch() {
  first_of_launch_ = period_ + 1;
  blocks_.clear();
  if (pages_.size() <= kMostPages) return;
  pages_.clear();
  last_ = nullptr;
}

void Races::begin_block(uint64_t number) {
  first_of_block_ = ++period_;
  blocks_.emplace_back(period_, number);
  warp_epochs_.fill(0);
}

uint64_t Races::block_at(uint32_t period) const {
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), period,
                                      [](uint32_t p, const auto& block) { return p < block.first; });
  return std::prev(after)->second;
}

Races::Touch Races::mine(int lane, AccessKind kind) const {
  Touch touch{};
  touch.lane = static_cast<uint32_t>(lane) & 0x3ffu;
  touch.atomic = kind == AccessKind::atomic;
  touch.set = 1;
  touch.warp_epoch = warp_epochs_[static_cast<size_t>(lane / kWarp)] & 0x1ffffu;
  return touch;
}

// Whether `earlier`, of the same period, is of another thread that nothing orders before `later`.
bool Races::collide(const Touch& earlier, const Touch& later) {
  if (!earlier.set || (earlier.lane == later.lane && !earlier.many && !earlier.warps)) return false;
  return earlier.warps || earlier.lane / kWarp != later.lane / kWarp ||
         earlier.warp_epoch == later.warp_epoch;
}

void Races::remember_read(ByThreads& cell, const Touch& touch) {
  for (Touch& read : cell.reads) {
    if (!read.set || (read.lane / kWarp == touch.lane / kWarp && read.warp_epoch != touch.warp_epoch)) {
      read = touch;
      return;
    }
    if (read.lane / kWarp == touch.lane / kWarp) {
      if (read.lane != touch.lane) read.many = 1;
      return;
    }
  }
}

std::optional<Rival> Races::among_threads(ByThreads& cell, const Touch& touch, AccessKind kind) const {
  if (cell.period != period_) cell = {period_, {}, {}};
  const auto rival = [&](const Touch& earlier, bool wrote) {
    return Rival{static_cast<int>(earlier.lane), blocks_.back().second, wrote, 0};
  };
  const Touch before = cell.write;
  const bool same_warp = before.lane / kWarp == touch.lane / kWarp;
  const bool atomics = before.atomic && touch.atomic && (same_warp || !before.plain);
  if (collide(before, touch) && !atomics) return rival(before, true);
  if (kind == AccessKind::read) {
    remember_read(cell, touch);
    return std::nullopt;
  }
  for (const Touch& read : cell.reads)
    if (collide(read, touch)) return rival(read, false);
  cell.write = touch;
  if (!touch.atomic || !before.set) return std::nullopt;
  const bool same_epoch = same_warp && before.warp_epoch == touch.warp_epoch;
  cell.write.plain = !before.atomic || before.plain;
  if (!before.atomic) {  // not of another thread in this epoch, or it had collided
    cell.write.atomic = !same_epoch;
    return std::nullopt;
  }
  cell.write.warps = before.warps || !same_warp;
  cell.write.many = same_epoch && (before.many || before.lane != touch.lane);
  return std::nullopt;
}

std::optional<Rival> Races::among_blocks(ByBlocks& cell, const Touch& touch, AccessKind kind) const {
  const auto elsewhere = [&](uint32_t period) {
    return period >= first_of_launch_ && period < first_of_block_;
  };
  const bool writes = kind != AccessKind::read;
  if (elsewhere(cell.written) && !(cell.write.atomic && touch.atomic))
    return Rival{static_cast<int>(cell.write.lane), block_at(cell.written), true, 0};
  if (writes && elsewhere(cell.read))
    return Rival{static_cast<int>(cell.reader.lane), block_at(cell.read), false, 0};
  if (writes && (cell.written < first_of_launch_ || !touch.atomic)) {
    cell.written = period_;
    cell.write = touch;
  }
  if (!writes && cell.read < first_of_launch_) {
    cell.read = period_;
    cell.reader = touch;
  }
  return std::nullopt;
}

Races::Page& Races::page(uintptr_t number) {
  if (last_ != nullptr && number == last_number_) return *last_;
  std::unique_ptr<Page>& found = pages_[number];
  if (found == nullptr) found = std::make_unique<Page>();
  last_number_ = number;
  last_ = found.get();
  return *last_;
}

std::optional<Rival> Races::touch_shared(int lane, size_t offset, size_t bytes, AccessKind kind) {
  if (shared_.size() < offset + bytes) shared_.resize(offset + bytes);
  const Touch touch = mine(lane, kind);
  for (size_t i = 0; i < bytes; ++i)
    if (auto rival = among_threads(shared_[offset + i], touch, kind)) {
      rival->byte = i;
      return rival;
    }
  return std::nullopt;
}

std::optional<Rival> Races::touch_global(int lane, const void* at, size_t bytes, AccessKind kind) {
  const Touch touch = mine(lane, kind);
  const auto first = reinterpret_cast<uintptr_t>(at);
  for (size_t i = 0; i < bytes; ++i) {
    ByBlocks& cell = page((first + i) / kPage)[(first + i) % kPage];
    auto rival = among_blocks(cell, touch, kind);
    if (!rival) rival = among_threads(cell.threads, touch, kind);
    if (rival) {
      rival->byte = i;
      return rival;
    }
  }
  return std::nullopt;
}

}  // namespace gpu_emulation
