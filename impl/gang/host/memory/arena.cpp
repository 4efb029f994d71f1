#include "gang/host/memory/arena.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include "base/config.h"
#include "base/library_build.h"
#include "device/host_memory.h"
#include "gang/host/memory/limits.h"
#include "gang/rendezvous/identity.h"

namespace gangway::host {
namespace {

std::atomic<uint32_t> forks{0};

void count_fork() { forks.fetch_add(1, std::memory_order_relaxed); }

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, count_fork);

unsigned char* map_bytes(size_t bytes, int protection, int fd, bool threads) {
  const int flags = threads ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE;
  void* const p = mmap(nullptr, bytes, protection, flags, fd, 0);
  return p == MAP_FAILED ? nullptr : static_cast<unsigned char*>(p);
}

// Keeps the range out of children of fork, which take no part in the arena, and out of core dumps. For a dump
// the kernel would read every page of the reserve, and so allocate it, and peers would learn of the crash
// only after that. Both settings also stay in effect if parts of the range are unmapped or emptied later.
void keep_out(unsigned char* first, size_t bytes, bool threads) {
  if (!threads) madvise(first, bytes, MADV_DONTFORK);
  madvise(first, bytes, MADV_DONTDUMP);
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

uint32_t fork_generation() noexcept { return forks.load(std::memory_order_relaxed); }

std::shared_ptr<Arena> Arena::create(int size, bool threads, const ArenaOptions& options) {
  if (size > kMaxRanks)
    fail(Code::not_supported, "host engine: ", size, " ranks on one host; at most ", kMaxRanks);
  std::shared_ptr<Arena> arena(new Arena);
  arena->threads_ = threads;
  uint64_t bytes = round_up(options.reserve != 0 ? options.reserve : default_reserve(), 2 << 20);
  const uint64_t least = uint64_t{64 << 20} + static_cast<uint64_t>(size) * (16 << 20);
  bytes = std::max(bytes, least);
  // A limit on address space or file size may be tighter than the reserve, so take what is available.
  for (;; bytes = round_up(bytes / 2, 2 << 20)) {
    if (!threads) {
      rlimit file{};
      if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur != RLIM_INFINITY && file.rlim_cur < bytes) {
        if (bytes / 2 < least)
          fail(Code::out_of_memory, "host engine: the file size limit of ", file.rlim_cur,
               " bytes is below the least arena of ", least);
        continue;
      }
      if (arena->fd_ < 0) arena->fd_ = memfd_create("gangway", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      if (arena->fd_ < 0) fail_system(Code::gang, "host engine: memfd_create", errno);
    }
    arena->base_ = map_bytes(bytes, PROT_READ | PROT_WRITE, arena->fd_, threads);
    if (arena->base_ != nullptr && !threads) {
      arena->bytes_ = bytes;
      arena->map_read_only();
      if (arena->read_only_ == nullptr) munmap(arena->base_, bytes), arena->base_ = nullptr;
    }
    if (arena->base_ != nullptr) break;
    if (bytes / 2 < least)
      fail_system(Code::out_of_memory, text("host engine: reserve of ", bytes, " bytes of address space"),
                  errno);
  }
  arena->bytes_ = bytes;
  if (threads) {
    arena->read_only_ = arena->base_;
    madvise(arena->base_, bytes, MADV_HUGEPAGE);
  } else {
    if (ftruncate(arena->fd_, static_cast<off_t>(bytes)) != 0)
      fail_system(Code::gang, "host engine: ftruncate", errno);
    if (fcntl(arena->fd_, F_ADD_SEALS, kSeals) != 0) fail_system(Code::gang, "host engine: sealing", errno);
    keep_out(arena->read_only_, bytes, threads);
  }
  keep_out(arena->base_, bytes, threads);
  DomainHeader& h = arena->header();
  h.size = static_cast<uint32_t>(size);
  h.threads = threads ? 1 : 0;
  h.bytes = bytes;
  h.slices = round_up(sizeof(DomainHeader) + static_cast<size_t>(size) * sizeof(RankSlot), 2 << 20);
  h.slice_bytes = (bytes - h.slices) / static_cast<size_t>(size) / (2 << 20) * (2 << 20);
  h.liveness_ms = options.liveness_ms;
  h.limit = options.limit != 0 ? options.limit : default_limit();
  std::string(library_build()).copy(h.build, sizeof h.build - 1);
  h.magic.store(kMagic, std::memory_order_release);
  return arena;
}

std::shared_ptr<Arena> Arena::map(int fd, int rank) {
  std::shared_ptr<Arena> arena(new Arena);
  arena->fd_ = fd;
  struct stat s {};
  if (fstat(fd, &s) != 0) fail_system(Code::gang, "host engine: fstat of the arena", errno);
  if (fcntl(fd, F_GET_SEALS) != kSeals)
    fail(Code::gang, "host engine: the memory handed over is not a sealed arena");
  arena->bytes_ = static_cast<size_t>(s.st_size);
  arena->base_ = map_bytes(arena->bytes_, PROT_READ | PROT_WRITE, fd, false);
  if (arena->base_ != nullptr) arena->map_read_only();
  if (arena->read_only_ == nullptr)
    fail_system(Code::out_of_memory, text("host engine: mapping ", arena->bytes_, " bytes"), errno);
  keep_out(arena->base_, arena->bytes_, false);
  keep_out(arena->read_only_, arena->bytes_, false);
  const DomainHeader& h = arena->header();
  if (h.magic.load(std::memory_order_acquire) != kMagic)
    fail(Code::invalid_state, "host engine: the memory handed over is of another build of the library");
  check_same_build(rank, library_build(), 0, std::string(h.build, strnlen(h.build, sizeof h.build)));
  if (h.bytes != arena->bytes_) fail(Code::gang, "host engine: the memory handed over has another size");
  return arena;
}

void Arena::map_read_only() {
  read_only_ = map_bytes(bytes_, PROT_READ, fd_, false);
  if (read_only_ != nullptr) known_ = std::make_unique<ReadOnlyRange>(read_only_, bytes_);
}

Arena::~Arena() {
  close_fd();
  if (forked() && !threads_) {            // a child of fork has no mapping
    static_cast<void>(known_.release());  // leaked: a thread of the parent may have held its lock at the fork
    return;
  }
  known_.reset();
  if (read_only_ != nullptr && read_only_ != base_) munmap(read_only_, bytes_);
  if (base_ != nullptr) munmap(base_, bytes_);
}

void Arena::close_fd() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

uint64_t Arena::offset_of(const void* p, size_t bytes) const {
  if (holds(p, bytes)) return static_cast<uint64_t>(static_cast<const unsigned char*>(p) - base_);
  const auto* const c = static_cast<const unsigned char*>(p);
  if (c >= read_only_ && c < read_only_ + bytes_ && bytes <= static_cast<size_t>(read_only_ + bytes_ - c))
    return static_cast<uint64_t>(c - read_only_);
  return 0;
}

bool Arena::died(int r) const noexcept {
  const RankSlot& slot = rank(r);
  if (threads_ || slot.state.load(std::memory_order_acquire) != static_cast<int32_t>(RankState::lost))
    return false;
  return slot.loss_cause.load(std::memory_order_relaxed) != static_cast<int32_t>(LossCause::silent) ||
         (slot.alive_lock.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

void Arena::take(uint64_t offset, size_t bytes, bool lazy) {
  constexpr size_t kPiece = 64 << 20;
  DomainHeader& h = header();
  size_t taken = 0;
  const auto refuse = [&](uint64_t have, uint64_t limit, const char* which) {
    give_back(offset, taken);
    fail(Code::out_of_memory, "host engine: ", bytes, " bytes are wanted, but ", have, " of ", limit,
         " bytes ", which);
  };
  while (taken < bytes) {
    const size_t piece = std::min(kPiece, bytes - taken);
    const uint64_t before = h.used.fetch_add(piece, std::memory_order_relaxed);
    if (before + piece > h.limit) {
      h.used.fetch_sub(piece, std::memory_order_relaxed);
      refuse(before, h.limit, "that the ranks of this host may take are taken");
    }
    if (!lazy) {
      // The count covers the ranks of this gang only; other programs take memory as well.
      if (piece >= (1 << 20)) {
        const uint64_t available = available_memory();
        if (piece > available) {
          h.used.fetch_sub(piece, std::memory_order_relaxed);
          refuse(available, piece, "of the next piece are available on this host");
        }
      }
      touch(base_ + offset + taken, piece);
    }
    taken += piece;
  }
}

void Arena::give_back(uint64_t offset, size_t bytes) noexcept {
  if (bytes == 0) return;
  madvise(base_ + offset, bytes, threads_ ? MADV_DONTNEED : MADV_REMOVE);
  header().used.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace gangway::host
