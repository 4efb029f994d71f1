#include "gpu_emulation/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gpu_emulation/fiber.h"
#include "gpu_emulation/memory.h"
#include "gpu_emulation/races.h"
#include "gpu_emulation/warp_accesses.h"

namespace gpu_emulation {

thread_local Lane* current_lane = nullptr;

namespace {

constexpr size_t kGuardBytes = 4096;
// Whole pages, so that the guard begins right behind a block's shared memory.
constexpr size_t kSharedMap = (kMostSharedBytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
constexpr int kWarps = kThreadsPerBlock / kWarp;

enum class State : uint8_t { unstarted, running, at_barrier, at_exchange, ended };

struct Slot {
  Lane lane;
  State state = State::unstarted;
  Fiber* fiber = nullptr;
  Site site{};
  std::vector<Copy> copies;
};

// Chooses one of the set bits of a mask, in an order that the seed determines.
class Chooser {
 public:
  explicit Chooser(uint32_t seed) : seed_(seed), random_(seed * 2654435761u + 1) {}
  int among(uint32_t ready) {
    if (seed_ == 0) return std::countr_zero(ready);
    if (seed_ == 1) return 31 - std::countl_zero(ready);
    const int turn = static_cast<int>(random_() >> 8 & 31u);
    return (std::countr_zero(std::rotr(ready, turn)) + turn) & 31;
  }
  bool now_and_then() { return seed_ > 1 && (random_() >> 8 & 7u) == 0; }
  void order(std::vector<uint64_t>& blocks) {
    if (seed_ == 1) std::reverse(blocks.begin(), blocks.end());
    if (seed_ > 1) std::shuffle(blocks.begin(), blocks.end(), random_);
  }

 private:
  const uint32_t seed_;
  std::minstd_rand random_;
};

std::string place(const Site& site) {
  return std::string(site.what) + " at " + site.file + ":" + std::to_string(site.line);
}
std::string numbers(const uint3& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
}

}  // namespace

// The state of one block. The next block reuses it.
class Block {
 public:
  std::optional<Fault> run(const std::string& name, const LaunchShape& shape,
                           const std::function<void()>& body, uint32_t seed, bool races) {
    name_ = &name;
    searches_races_ = races;
    races_.begin_launch();
    body_ = &body;
    shape_ = shape;
    fault_.reset();
    Chooser chooser(seed);
    chooser_ = &chooser;
    const size_t total = uint64_t{1} * shape.grid.x * shape.grid.y * shape.grid.z;
    std::vector<uint64_t> blocks(total);
    std::iota(blocks.begin(), blocks.end(), uint64_t{0});
    chooser.order(blocks);
    Block* const outer = std::exchange(current_, this);
    for (const uint64_t block : blocks) {
      run_block(block);
      if (fault_) break;
    }
    current_ = outer;
    current_lane = nullptr;
    return std::move(fault_);
  }

  void barrier(const Site& site) { pause(State::at_barrier, site); }

  const uint64_t* exchange(unsigned mask, uint64_t word, const Site& site) {
    Slot& slot = *running_;
    const size_t index = static_cast<size_t>(&slot - slots_.data());
    Warp& warp = warps_[index / kWarp];
    const uint64_t generation = warp.generation;
    if ((mask & living(index / kWarp)) != living(index / kWarp))
      stop("names lanes by a mask that misses threads of the warp", site);
    warp.words[generation & 1][slot.lane.in_warp] = word;
    pause(State::at_exchange, site);
    return warp.words[generation & 1];
  }

  uint64_t word_of(const uint64_t* words, unsigned lane, const Site& site) {
    const Warp& warp = warps_[static_cast<size_t>(running_ - slots_.data()) / kWarp];
    if ((warp.took_part[words == warp.words[1]] >> lane & 1u) == 0)
      stop(("reads lane " + std::to_string(lane) + ", which has ended or does not exist").c_str(), site);
    return words[lane];
  }

  // Aligned to 16 bytes, as on a device.
  char* shared() const { return shared_end_ - (shape_.shared_bytes + 15) / 16 * 16; }

  void note(const void* at, size_t bytes, AccessKind kind, const void* code) {
    const bool watched = WarpAccesses::watched();
    if (!watched && !searches_races_) return;
    const auto offset = static_cast<size_t>(static_cast<const char*>(at) - shared());
    const bool in_shared = at >= shared() && at < shared_end_;
    if (!in_shared && !is_device_address(at)) return;
    const int index = static_cast<int>(running_ - slots_.data());
    if (watched)
      accesses_.note(index, in_shared, in_shared ? offset : reinterpret_cast<uintptr_t>(at), bytes, kind,
                     code);
    if (!searches_races_ || (in_shared && at > shared_end_ - bytes)) return;
    const auto rival = in_shared ? races_.touch_shared(index, offset, bytes, kind)
                                 : races_.touch_global(index, at, bytes, kind);
    if (!rival) return;
    fault_ = Fault{cudaErrorLaunchFailure, race(*rival, at, in_shared, kind)};
    leave();
  }

  // Ends the kernel from inside a fiber.
  [[noreturn]] void stop(const char* why, const Site& site) {
    fault_ = Fault{cudaErrorLaunchFailure, here() + " " + why + ", " + place(site)};
    leave();
  }
  [[noreturn]] void stop_at_access() {
    fault_ = Fault{cudaErrorIllegalAddress, here() + ": " + describe_access().data()};
    leave();
  }

  bool in_fiber() const { return running_ != nullptr; }
  std::vector<Copy>& copies() { return running_->copies; }

  static thread_local Block* current_;

  Block() : slots_(kThreadsPerBlock) {
    shared_map_ = static_cast<char*>(mmap(nullptr, kSharedMap + kGuardBytes, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (shared_map_ == MAP_FAILED) throw std::bad_alloc();
    shared_end_ = shared_map_ + kSharedMap;
    if (mprotect(shared_end_, kGuardBytes, PROT_NONE) != 0) throw std::bad_alloc();
  }
  ~Block() { munmap(shared_map_, kSharedMap + kGuardBytes); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  struct Warp {
    uint32_t ready = 0;
    uint64_t generation = 0;
    uint64_t words[2][kWarp];
    uint32_t took_part[2];  // lanes, in the exchange of these words
  };

  void run_block(uint64_t number) {
    begin_block(number);
    while (living_ > 0) {
      Slot* const next = choose();
      if (next == nullptr) {
        if (!release_barrier()) return;
        continue;
      }
      resume(*next);
      if (fault_) return abandon();
      if (next->state == State::at_exchange)
        release_exchange(static_cast<size_t>(next - slots_.data()) / kWarp);
      if (fault_) return abandon();
    }
    accesses_.flush_all();
  }

  void begin_block(uint64_t number) {
    const dim3 grid = shape_.grid, block = shape_.block;
    const uint3 at = block_at(number);
    threads_ = living_ = static_cast<int>(block.x * block.y * block.z);
    ready_warps_ = 0;
    for (int i = 0; i < threads_; ++i) {
      Slot& slot = slots_[static_cast<size_t>(i)];
      const unsigned n = static_cast<unsigned>(i);
      slot.lane = {{n % block.x, n / block.x % block.y, n / block.x / block.y}, at, block, grid, n % kWarp};
      slot.state = State::unstarted;
      slot.copies.clear();
    }
    for (int w = 0; w * kWarp < threads_; ++w) {
      const int in_warp = std::min(kWarp, threads_ - w * kWarp);
      warps_[w].ready = in_warp == kWarp ? ~0u : (1u << in_warp) - 1;
      warps_[w].generation = 0;
      ready_warps_ |= 1u << w;
    }
    warp_ = chooser_->among(ready_warps_);
    races_.begin_block(number);
    std::memset(shared(), 0xff, shape_.shared_bytes);
  }

  Slot* choose() {
    if (ready_warps_ == 0) return nullptr;
    if ((ready_warps_ >> warp_ & 1u) == 0 || chooser_->now_and_then()) warp_ = chooser_->among(ready_warps_);
    Warp& warp = warps_[warp_];
    const int in_warp = chooser_->among(warp.ready);
    warp.ready &= ~(1u << in_warp);
    if (warp.ready == 0) ready_warps_ &= ~(1u << warp_);
    return &slots_[static_cast<size_t>(warp_ * kWarp + in_warp)];
  }

  void make_ready(size_t index) {
    slots_[index].state = State::running;
    warps_[index / kWarp].ready |= 1u << index % kWarp;
    ready_warps_ |= 1u << index / kWarp;
  }

  void resume(Slot& slot) {
    if (slot.state == State::unstarted) {
      if (free_.empty()) free_.push_back(fibers_.emplace_back(std::make_unique<Fiber>()).get());
      slot.fiber = free_.back();
      free_.pop_back();
      slot.fiber->set(run_thread, this);
      slot.state = State::running;
    }
    running_ = &slot;
    current_lane = &slot.lane;
    slot.fiber->resume();
    running_ = nullptr;
    if (slot.state == State::ended) {
      free_.push_back(slot.fiber);
      --living_;
      const size_t warp = static_cast<size_t>(&slot - slots_.data()) / kWarp;
      if (living(warp) != 0) release_exchange(warp);
    }
  }

  static void run_thread(void* all) {
    Block& block = *static_cast<Block*>(all);
    (*block.body_)();
    block.running_->state = State::ended;
  }

  // Returns to the scheduler, and comes back when the scheduler chooses this fiber again.
  void pause(State state, const Site& site) {
    running_->state = state;
    running_->site = site;
    running_->fiber->pause();
  }
  [[noreturn]] void leave() {
    running_->fiber->pause();
    __builtin_unreachable();
  }

  uint32_t living(size_t warp) const {
    uint32_t mask = 0;
    for (size_t i = warp * kWarp; i < std::min<size_t>((warp + 1) * kWarp, static_cast<size_t>(threads_));
         ++i)
      if (slots_[i].state != State::ended) mask |= 1u << i % kWarp;
    return mask;
  }

  void release_exchange(size_t warp) {
    const size_t first = warp * kWarp, last = std::min<size_t>(first + kWarp, static_cast<size_t>(threads_));
    const Slot* waiting = nullptr;
    for (size_t i = first; i < last; ++i) {
      const Slot& slot = slots_[i];
      if (slot.state == State::ended) continue;
      if (slot.state != State::at_exchange) return;
      if (waiting != nullptr && differ(waiting->site, slot.site)) return differ_fault(*waiting, slot);
      waiting = &slot;
    }
    if (waiting == nullptr) return;
    const uint32_t lanes = living(warp);
    if (waiting->site.whole_warp && lanes != ~0u) {
      fault_ = Fault{cudaErrorLaunchFailure, "kernel " + *name_ + ", block " + numbers(waiting->lane.block) +
                                                 ", thread " + numbers(waiting->lane.thread) +
                                                 ": a thread of its warp has ended or does not exist, " +
                                                 place(waiting->site)};
      return;
    }
    warps_[warp].took_part[warps_[warp].generation & 1] = lanes;
    ++warps_[warp].generation;
    if (waiting->site.orders_memory) races_.pass_warp_barrier(warp);
    accesses_.flush(warp);
    for (size_t i = first; i < last; ++i)
      if (slots_[i].state == State::at_exchange) make_ready(i);
  }

  // Called when no thread is ready: all wait at one barrier, or the waits differ, which is a fault.
  bool release_barrier() {
    const Slot* waiting = nullptr;
    for (int i = 0; i < threads_; ++i) {
      const Slot& slot = slots_[static_cast<size_t>(i)];
      if (slot.state == State::ended) continue;
      if (waiting != nullptr && differ(waiting->site, slot.site)) {
        differ_fault(*waiting, slot);
        abandon();
        return false;
      }
      waiting = &slot;
    }
    for (int i = 0; i < threads_; ++i)
      if (slots_[static_cast<size_t>(i)].state == State::at_barrier) make_ready(static_cast<size_t>(i));
    races_.pass_barrier();
    accesses_.flush_all();
    return true;
  }

  static bool differ(const Site& a, const Site& b) {
    return a.line != b.line || std::strcmp(a.file, b.file) != 0 || std::strcmp(a.what, b.what) != 0;
  }
  void differ_fault(const Slot& a, const Slot& b) {
    fault_ = Fault{cudaErrorLaunchFailure, "kernel " + *name_ + ": divergence in block " +
                                               numbers(a.lane.block) + ": thread " + numbers(a.lane.thread) +
                                               " waits in " + place(a.site) + ", thread " +
                                               numbers(b.lane.thread) + " in " + place(b.site)};
  }

  std::string here() const {
    return "kernel " + *name_ + ", block " + numbers(running_->lane.block) + ", thread " +
           numbers(running_->lane.thread);
  }

  std::string race(const Rival& rival, const void* at, bool in_shared, AccessKind kind) const {
    const char* const byte = static_cast<const char*>(at) + rival.byte;
    const Where place = where(byte);
    const std::string memory = in_shared ? "byte " + std::to_string(byte - shared()) + " of shared memory"
                                         : "byte " + std::to_string(place.offset) + " of a block of " +
                                               std::to_string(place.offset + place.rest) + " bytes";
    const auto does = [](AccessKind k) {
      return k == AccessKind::read ? " reads " : k == AccessKind::write ? " writes " : " changes atomically ";
    };
    return here() + ": race:" + does(kind) + memory + ", which block " + numbers(block_at(rival.block)) +
           ", thread " + numbers(slots_[static_cast<size_t>(rival.lane)].lane.thread) +
           (rival.wrote ? " has written" : " has read") + " with no barrier between";
  }
  uint3 block_at(uint64_t number) const {
    const dim3 grid = shape_.grid;
    return {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
            static_cast<unsigned>(number / grid.x / grid.y)};
  }

  // Drops the fibers, which will never run again. This loses nothing, because kernels own nothing.
  void abandon() {
    for (int i = 0; i < threads_; ++i) {
      Slot& slot = slots_[static_cast<size_t>(i)];
      if (slot.state == State::unstarted || slot.state == State::ended) continue;
      slot.fiber->abandon();
      free_.push_back(slot.fiber);
    }
    living_ = 0;
  }

  Slot* running_ = nullptr;
  const std::string* name_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  LaunchShape shape_{};
  Chooser* chooser_ = nullptr;
  std::optional<Fault> fault_;
  std::vector<Slot> slots_;
  Warp warps_[kWarps];
  uint32_t ready_warps_ = 0;
  int warp_ = 0, threads_ = 0, living_ = 0;
  bool searches_races_ = false;
  Races races_;
  WarpAccesses accesses_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  char *shared_map_, *shared_end_;  // ends at a protected page, so that accesses beyond are faults
};

thread_local Block* Block::current_ = nullptr;

Runner::Runner() : block_(std::make_unique<Block>()) {}
Runner::~Runner() = default;

std::optional<Fault> Runner::run(const std::string& name, const LaunchShape& shape,
                                 const std::function<void()>& body, uint32_t seed, bool races) {
  return block_->run(name, shape, body, seed, races);
}

void block_barrier(const Site& site) { Block::current_->barrier(site); }
const uint64_t* warp_exchange(unsigned mask, uint64_t word, const Site& site) {
  return Block::current_->exchange(mask, word, site);
}
uint64_t word_of(const uint64_t* words, unsigned lane, const Site& site) {
  return Block::current_->word_of(words, lane, site);
}
void stop_kernel(const char* why, const Site& site) { Block::current_->stop(why, site); }
void require_aligned(const void* address, size_t bytes, const Site& site) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0)
    Block::current_->stop("has an address that is not aligned", site);
}
std::vector<Copy>& copies() { return Block::current_->copies(); }
void* shared_memory() { return Block::current_->shared(); }
bool in_fiber() { return Block::current_ != nullptr && Block::current_->in_fiber(); }
void note_access(const void* at, size_t bytes, AccessKind kind, const void* code) {
  if (in_fiber()) Block::current_->note(at, bytes, kind, code);
}
void leave_faulty_fiber() { Block::current_->stop_at_access(); }

}  // namespace gpu_emulation
