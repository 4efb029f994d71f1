#include "gang/network/host_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/interrupt.h"
#include "gang/host/memory/arena.h"
#include "gang/host/presence/handover_socket.h"
#include "gang/network/places.h"
#include "gang/rendezvous/store_common.h"

namespace gangway::network {
namespace {

constexpr uint64_t kLeast = 64 << 20;  // bytes of address space beside those of the ranks
constexpr uint64_t kEach = 16 << 20;   // of each rank beside its rings

std::string door_name(const Place& place) {
  return "gangway-" + hex(std::span<const uint8_t>(place.memory_name));
}
std::string token_of(const Place& place) {
  static_assert(sizeof place.memory_token == host::kToken);
  return {reinterpret_cast<const char*>(place.memory_token), sizeof place.memory_token};
}

// Lies in the slice of the host's first rank.
struct Table {
  std::atomic<uint32_t> arrived;  // how many ranks have mapped the memory
  MemoryLane lanes[];             // lane (from, to) of n ranks is from * n + to
};

// Notices that a rank of this host fails or dies while the memory is shared.
class Watch {
 public:
  Watch(Meeting& meeting, const std::vector<int>& ranks, int own) : meeting_(meeting) {
    for (const int r : ranks) {
      if (r == own) continue;
      const auto pid = meeting.places()[static_cast<size_t>(r)].pid;
      Descriptor fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
      has_ended_.push_back(!fd && errno == ESRCH);
      ranks_.push_back(r);
      fds_.push_back(std::move(fd));
    }
  }

  void check() {
    check([] { return false; });
  }
  // A rank may end when `all_have_come`.
  template <typename AllHaveCome>
  void check(AllHaveCome&& all_have_come) {
    poll_interrupt();
    for (size_t i = 0; i < fds_.size(); ++i) {
      pollfd one{fds_[i].get(), POLLIN, 0};
      if (!has_ended_[i] && !(fds_[i] && poll(&one, 1, 0) > 0)) continue;
      if (all_have_come()) return;
      meeting_.check();  // first, because a rank that fails tells why
      Error error(Code::peer_lost,
                  text("gang.create: ", meeting_.name_of(ranks_[i]), " died while the gang was made"));
      error.peer = ranks_[i];
      throw std::move(error);
    }
    if (!next_look_.passed()) return;
    next_look_ = Deadline::after_ms(kLookMs);
    meeting_.check();
  }

 private:
  Meeting& meeting_;
  std::vector<int> ranks_;
  std::vector<Descriptor> fds_;
  std::vector<bool> has_ended_;
  Deadline next_look_ = Deadline::after_ms(kLookMs);
};

void hand_out(const Descriptor& door, const Place& own, int fd, int peers, Watch& watch) {
  std::vector<host::Pending> pending;
  for (int served = 0; served < peers;) {
    std::vector<pollfd> polls{{door.get(), POLLIN, 0}};
    for (const host::Pending& one : pending) polls.push_back({one.socket.get(), POLLIN, 0});
    poll(polls.data(), polls.size(), static_cast<int>(kNapMs));
    std::erase_if(pending, [&](host::Pending& one) { return host::serve(one, token_of(own), fd, served); });
    host::take_in(door, pending);
    if (served < peers) watch.check();
  }
}

int fetch(const Place& giver, Deadline deadline, Watch& watch) {
  for (;;) {
    const Descriptor to = host::reach(door_name(giver), deadline);
    if (to) {
      if (!host::same_user(to.get()))
        fail(Code::gang, "gang.create: rank ", giver.rank, " of this host belongs to another user");
      const std::string token = token_of(giver);
      const ssize_t sent = send(to.get(), token.data(), token.size(), MSG_NOSIGNAL);
      if (sent == static_cast<ssize_t>(token.size()) && host::readable(to.get(), deadline))
        if (const int fd = host::receive_fd(to.get()); fd >= 0) return fd;
    }
    // The other rank had too many connections, or it ends.
    watch.check();
    usleep(5000);
  }
}

}  // namespace

struct HostMemory::Parts {
  std::shared_ptr<host::Arena> arena;
  std::unique_ptr<host::Slice> slice;
  std::vector<int> ranks;  // of this host
  int index = 0;           // of this rank among them

  Table& table() const { return *arena->at<Table>(arena->header().root_board); }
  MemoryLane& lane(size_t from, size_t to) const { return table().lanes[from * ranks.size() + to]; }
};

Descriptor open_memory_door(const Place& own) { return host::listen_at(door_name(own)); }

HostMemory::HostMemory(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
HostMemory::~HostMemory() = default;

std::shared_ptr<HostMemory> HostMemory::share(Meeting& meeting, const EngineOptions& options) {
  const Descriptor door = meeting.take_memory_door();
  auto parts = std::make_unique<Parts>();
  const std::vector<int> hosts = meeting.hosts();
  for (int r = 0; r < options.size; ++r) {
    if (hosts[static_cast<size_t>(r)] != hosts[static_cast<size_t>(options.rank)]) continue;
    if (r == options.rank) parts->index = static_cast<int>(parts->ranks.size());
    parts->ranks.push_back(r);
  }
  const uint64_t n = parts->ranks.size();
  if (n == 1) return nullptr;
  Watch watch(meeting, parts->ranks, options.rank);
  const auto& places = meeting.places();
  if (parts->index == 0) {
    const uint64_t reserve = kLeast + n * (kEach + n * kRingBytes);
    parts->arena = host::Arena::create(static_cast<int>(n), /*threads=*/false,
                                       {.reserve = reserve, .limit = options.memory_limit});
    parts->slice = std::make_unique<host::Slice>(parts->arena, 0);
    parts->arena->header().root_board =
        parts->slice->allocate(sizeof(Table) + n * n * sizeof(MemoryLane), /*zeroed=*/true, /*lazy=*/true);
    hand_out(door, places[static_cast<size_t>(options.rank)], parts->arena->fd(), static_cast<int>(n) - 1,
             watch);
  } else {
    const Place& giver = places[static_cast<size_t>(parts->ranks[0])];
    parts->arena = host::Arena::map(fetch(giver, meeting.deadline(), watch), options.rank);
    parts->slice = std::make_unique<host::Slice>(parts->arena, parts->index);
  }
  parts->arena->close_fd();
  std::atomic<uint32_t>& arrived = parts->table().arrived;
  arrived.fetch_add(1);
  const auto all_have_come = [&] { return arrived.load() == n; };
  while (!all_have_come()) {
    watch.check(all_have_come);
    usleep(500);
  }
  return std::shared_ptr<HostMemory>(new HostMemory(std::move(parts)));
}

std::unique_ptr<MemoryWire> HostMemory::wire_to(const std::shared_ptr<HostMemory>& memory, int rank) {
  if (memory == nullptr) return nullptr;
  const Parts& parts = *memory->parts_;
  const auto found = std::find(parts.ranks.begin(), parts.ranks.end(), rank);
  if (found == parts.ranks.end()) return nullptr;
  const auto own = static_cast<size_t>(parts.index);
  const auto peer = static_cast<size_t>(found - parts.ranks.begin());
  return std::make_unique<MemoryWire>(memory, parts.lane(own, peer), parts.lane(peer, own));
}

uint64_t HostMemory::allocate(size_t bytes) { return parts_->slice->allocate(bytes, /*zeroed=*/true); }

char* HostMemory::at(uint64_t offset, size_t bytes) const {
  const host::DomainHeader& header = parts_->arena->header();
  if (offset < header.slices || offset > header.bytes || bytes > header.bytes - offset) return nullptr;
  return reinterpret_cast<char*>(parts_->arena->at(offset));
}

}  // namespace gangway::network
