#include "gpu_emulation/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>

#include "gang/host/memory/futex.h"
#include "gpu_emulation/memory.h"

namespace gpu_emulation {
namespace {

constexpr size_t kPage = 4096;
constexpr int64_t kNap = 10'000'000;  // nanoseconds between two checks for an abort

struct Id {
  uint64_t number;
  int pid, file;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));

struct All {
  std::mutex mutex;
  std::map<uint64_t, int> made;  // the ids that this process made, with the files of their memory
  std::map<uint64_t, std::weak_ptr<Segment>> open;
};
All& all() {
  static auto* const all = new All;
  return *all;
}

size_t start_of_seats() { return kPage; }
size_t start_of_mailboxes(size_t size) { return start_of_seats() + size * sizeof(Seat); }
size_t start_of_slots(size_t size) {
  return (start_of_mailboxes(size) + size * size * sizeof(Mailbox) + kPage - 1) / kPage * kPage;
}
size_t bytes_for(size_t size) { return start_of_slots(size) + (size + size * size) * kSlot; }

uint64_t random_number() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

int open_file(const Id& id) {
  const std::string path = "/proc/" + std::to_string(id.pid) + "/fd/" + std::to_string(id.file);
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

}  // namespace

// The file is as long as the largest communicator needs, because only pages that are touched take memory.
ncclUniqueId Segment::make_id() {
  Id id{random_number(), getpid(), memfd_create("gpu_emulation_nccl", MFD_CLOEXEC)};
  if (id.file >= 0 && (ftruncate(id.file, static_cast<off_t>(bytes_for(kMostDevices))) != 0 ||
                       pwrite(id.file, &id.number, sizeof(id.number), 0) != sizeof(id.number))) {
    close(id.file);
    id.file = -1;
  }
  const std::lock_guard lock(all().mutex);
  if (id.file >= 0) all().made.emplace(id.number, id.file);
  ncclUniqueId packed{};
  std::memcpy(packed.internal, &id, sizeof(id));
  return packed;
}

std::shared_ptr<Segment> Segment::open(const ncclUniqueId& packed, int size) {
  Id id{};
  std::memcpy(&id, packed.internal, sizeof(id));
  const std::lock_guard lock(all().mutex);
  std::erase_if(all().open, [](const auto& entry) { return entry.second.expired(); });
  if (auto living = all().open[id.number].lock()) return living->size() == size ? living : nullptr;
  const int file = open_file(id);
  if (file < 0) return nullptr;
  const size_t bytes = bytes_for(static_cast<size_t>(size));
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  auto segment = std::shared_ptr<Segment>(new Segment(memory, bytes, size));
  // The system reuses numbers of files, so the id must match. The first rank decides the size.
  int other = 0;
  if (segment->id() != id.number ||
      (!segment->head_->size.compare_exchange_strong(other, size) && other != size))
    return nullptr;
  all().open[id.number] = segment;
  return segment;
}

Segment::Segment(void* memory, size_t bytes, int size)
    : head_(static_cast<Head*>(memory)), bytes_(bytes), size_(size) {
  char* const base = static_cast<char*>(memory);
  const auto ranks = static_cast<size_t>(size);
  seats_ = reinterpret_cast<Seat*>(base + start_of_seats());
  mailboxes_ = reinterpret_cast<Mailbox*>(base + start_of_mailboxes(ranks));
  slots_ = base + start_of_slots(ranks);
}
Segment::~Segment() { munmap(head_, bytes_); }

void Segment::changed() {
  ++head_->changes;
  gangway::host::futex_wake(head_->changes, INT_MAX);
}
void Segment::sleep(uint32_t seen) const { gangway::host::futex_wait(head_->changes, seen, kNap); }

void Segment::forget() const {
  const std::lock_guard lock(all().mutex);
  const auto found = all().made.find(id());
  if (found == all().made.end()) return;
  close(found->second);
  all().made.erase(found);
}

}  // namespace gpu_emulation
