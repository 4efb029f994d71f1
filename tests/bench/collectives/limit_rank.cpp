// What the machine allows without any library: a barrier of flags in shared memory (spinning; yielding where
// ranks outnumber cores) and plain copies from the next rank's memory, all ranks at once, a barrier after
// each; for send_recv a flag that the receiver waits for and its copy. Arguments: socket path, rank, size, name
// of the shared memory, 1 to pin. Job: op barrier, or any other with BYTES a rank and the way of copying in
// ARENA.
#include "common/rank.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>

#include "collectives/job.h"
#include "common/copy.h"

using namespace gangway::bench;

namespace {

struct alignas(128) Flag {
  std::atomic<uint64_t> value;
};
constexpr size_t kFlagBytes = 1 << 16;

class Shared {
 public:
  Shared(const char* name, int rank, int size) : rank_(rank), size_(size) {
    const size_t bytes = kFlagBytes + 2 * job_most_bytes() * static_cast<size_t>(size);
    const int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) base_ = static_cast<char*>(at);
    cpu_set_t may;
    yields_ = sched_getaffinity(0, sizeof may, &may) == 0 && CPU_COUNT(&may) < size;
  }
  bool ok() const { return base_ != nullptr; }

  void barrier() {
    flag(rank_).store(++sequence_, std::memory_order_release);
    for (int i = 0; i < size_; ++i)
      while (flag(i).load(std::memory_order_acquire) < sequence_)
        if (yields_) sched_yield();
  }
  char* block(int rank, int which) {
    return base_ + kFlagBytes +
           (2 * static_cast<size_t>(rank) + static_cast<size_t>(which)) * job_most_bytes();
  }
  // The source was written by its rank in the call before, as in a collective that is repeated.
  void call(const job& j, long i) {
    if (j.op == JOB_SEND_RECV) return pass(j, i);
    if (j.op != JOB_BARRIER)
      copy_bytes(kCopies[j.arena], block(rank_, turn_), block((rank_ + 1) % size_, 1 - turn_), j.bytes);
    turn_ = 1 - turn_;
    barrier();
  }

 private:
  void pass(const job& j, long i) {
    ++sequence_;
    if (rank_ > 1 || job_sends(rank_, i)) {
      flag(rank_).store(sequence_, std::memory_order_release);
      return;
    }
    while (flag(1 - rank_).load(std::memory_order_acquire) < sequence_)
      if (yields_) sched_yield();
    copy_bytes(kCopies[j.arena], block(rank_, 0), block(1 - rank_, 1), j.bytes);
  }
  std::atomic<uint64_t>& flag(int rank) { return reinterpret_cast<Flag*>(base_)[rank].value; }
  int rank_, size_, turn_ = 0;
  bool yields_ = false;
  char* base_ = nullptr;
  uint64_t sequence_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const int rank = std::atoi(argv[2]), size = std::atoi(argv[3]);
  Shared shared(argv[4], rank, size);
  if (!shared.ok()) return 1;
  if (std::atoi(argv[5])) bench_pin(rank, size);
  for (int which = 0; which < 2; ++which)
    bench_fill(reinterpret_cast<float*>(shared.block(rank, which)), job_most_bytes() / 4,
               static_cast<unsigned>(rank) + 1);
  bench_driver driver = bench_connect(argv[1], rank, "flags and copies");
  char line[256];
  job j;
  while (bench_command(&driver, line, sizeof line)) {
    if (!job_read(line, &j) || j.arena < 0 || j.arena > 2) {
      bench_reply(&driver, "error: %s", line);
      continue;
    }
    for (long i = 0; i < j.warmup; ++i) shared.call(j, i);
    shared.barrier();
    const double start = bench_seconds();
    for (long i = 0; i < j.calls; ++i) shared.call(j, i);
    bench_reply(&driver, "%.12g", (bench_seconds() - start) / static_cast<double>(j.calls));
  }
  return 0;
}
