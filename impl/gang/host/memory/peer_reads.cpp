#include "gang/host/memory/peer_reads.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/config.h"
#include "base/error.h"
#include "base/log.h"

namespace gangway::host {
namespace {

uint64_t random_word() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

PeerReads::PeerReads(Arena& arena, int rank)
    : arena_(arena),
      rank_(rank),
      word_(random_word() | 1),
      state_(arena.threads() || !config().kernel_copies ? State::no : State::unknown) {}

void PeerReads::publish() {
  RankSlot& own = arena_.rank(rank_);
  if (state_ == State::no) own.reads_peers.store(kCannot, std::memory_order_relaxed);
  own.word.store(word_, std::memory_order_relaxed);
  own.word_at.store(reinterpret_cast<uint64_t>(&word_), std::memory_order_release);
}

bool PeerReads::find_out() noexcept {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<int>(arena_.header().size);
  if (!has_tried_) {
    for (int r = 0; r < size; ++r)
      if (arena_.rank(r).word_at.load(std::memory_order_acquire) == 0) return false;
    try_all();
    has_tried_ = true;
  }
  bool all = true;
  for (int r = 0; r < size; ++r) {
    const uint32_t tried = arena_.rank(r).reads_peers.load(std::memory_order_acquire);
    if (tried == kCannot) state_ = State::no;
    all = all && tried == kReads;
  }
  if (all) state_ = State::yes;
  return all;
}

void PeerReads::try_all() noexcept {
  uint32_t tried = kReads;
  try {
    uint64_t nothing = 0;
    for (int r = 0; r < static_cast<int>(arena_.header().size) && tried == kReads; ++r)
      if (r != rank_ && read(r, arena_.rank(r).word_at.load(std::memory_order_relaxed), &nothing,
                             sizeof nothing) != Result::copied)
        tried = kCannot;
  } catch (const std::exception&) {
    tried = kCannot;
  }
  if (tried == kCannot)
    log(LogLevel::info,
        "host engine: the kernel does not let ranks read each other's memory, so that what is outside of "
        "the gang's memory is copied twice");
  arena_.rank(rank_).reads_peers.store(tried, std::memory_order_release);
}

PeerReads::Result PeerReads::read(int r, uint64_t address, void* to, size_t bytes) const {
  const RankSlot& peer = arena_.rank(r);
  uint64_t word = 0;
  const iovec here[] = {{&word, sizeof word}, {to, bytes}};
  const iovec there[] = {{reinterpret_cast<void*>(peer.word_at.load(std::memory_order_relaxed)), sizeof word},
                         {reinterpret_cast<void*>(address), bytes}};
  ssize_t copied = 0;
  do {
    copied = process_vm_readv(peer.pid.load(std::memory_order_relaxed), here, 2, there, 2, 0);
  } while (copied < 0 && errno == EINTR);
  if (copied < 0 && errno == EPERM) return Result::denied;
  if (copied < 0 && errno != EFAULT && errno != ESRCH)
    fail_system(Code::io, text("host engine: rank ", r, "'s memory cannot be read"), errno);
  if (copied < static_cast<ssize_t>(sizeof word) || word != peer.word.load(std::memory_order_relaxed))
    return Result::ended;  // and perhaps another process has its number
  return static_cast<size_t>(copied) == sizeof word + bytes ? Result::copied : Result::absent;
}

}  // namespace gangway::host
