#include "gpu_emulation/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "gpu_emulation/block.h"
#include "gpu_emulation/log.h"
#include "gpu_emulation/sanitizer.h"

namespace gpu_emulation {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;                // that of cudaMalloc
constexpr size_t kLeastRange = size_t{16} << 30;  // the least size of a device's address range
constexpr uint32_t kMostExtents = 1 << 20;        // the number of blocks of a device, over its life
constexpr size_t kFilled = 256 * 1024;            // bytes at each end of a block that become NaN
constexpr unsigned char kSlack = 0xa5;            // the byte around blocks

struct Extent {
  char* data;
  size_t bytes;
  char* first;  // the first page
  size_t pages;
  std::atomic<bool> live, open;
  Extent* next_open;
};

// The signal handler reads these objects, so they never move and change word by word.
struct Arena {
  char* base = nullptr;
  size_t range = 0, pages = 0;
  uint32_t* block_of_page = nullptr;  // index of the block + 1; 0: never used
  Extent* blocks = nullptr;
  uint32_t count = 0;
  size_t next_page = 0;
  uint64_t bytes = 0;
  int64_t live = 0;
};

struct Memory {
  std::mutex mutex;
  Arena arenas[kMostDevices];
  // All arenas lie between these. Kernels that tell of their accesses ask for each of them, and most are to
  // stacks.
  std::atomic<const char*> lowest{nullptr}, highest{nullptr};
  std::map<uintptr_t, size_t> pinned;
  std::mutex access_mutex;
  int accesses = 0;
  std::atomic<Extent*> open{nullptr};
  struct sigaction before {};
};
Memory& memory() {
  static auto* const memory = new Memory;
  return *memory;
}

thread_local int accessing = 0;
thread_local char* bad_address = nullptr;

template <typename T>
T* map_table(size_t count) {
  void* const at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return static_cast<T*>(at);
}

const Arena* arena_of(const void* address) {
  const Memory& all = memory();
  if (address < all.lowest.load(std::memory_order_relaxed) ||
      address >= all.highest.load(std::memory_order_relaxed))
    return nullptr;
  for (const Arena& arena : all.arenas)
    if (arena.base != nullptr && address >= arena.base && address < arena.base + arena.range) return &arena;
  return nullptr;
}
Extent* block_at(const Arena& arena, const void* address) {
  const uint32_t found =
      arena.block_of_page[static_cast<size_t>(static_cast<const char*>(address) - arena.base) / kPage];
  return found == 0 ? nullptr : &arena.blocks[found - 1];
}

void open_block(Extent& block) {
  const Unseen unseen;
  mprotect(block.first, block.pages * kPage, PROT_READ | PROT_WRITE);
  if (block.open.exchange(true)) return;
  Extent* head = memory().open.load();
  do {
    block.next_open = head;
  } while (!memory().open.compare_exchange_weak(head, &block));
}

void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) std::abort();
}

void on_fault(int signal, siginfo_t* info, void* context) {
  char* const address = static_cast<char*>(info->si_addr);
  const Arena* const arena = arena_of(address);
  if (accessing > 0) {
    Extent* const block = arena == nullptr ? nullptr : block_at(*arena, address);
    if (block != nullptr && block->live && address < block->first + block->pages * kPage)
      return open_block(*block);
    if (in_fiber()) {
      bad_address = address;
      // After the return from the signal, the fiber continues as if it had called this function.
      auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
      machine.gregs[REG_RSP] = (machine.gregs[REG_RSP] - 256) & ~greg_t{15};
      machine.gregs[REG_RSP] -= 8;  // the alignment after a call
      machine.gregs[REG_RIP] = reinterpret_cast<greg_t>(&leave_faulty_fiber);
#elif defined(__aarch64__)
      machine.sp = (machine.sp - 256) & ~15ull;
      machine.pc = reinterpret_cast<unsigned long long>(&leave_faulty_fiber);
#endif
      return;
    }
  }
  if (arena != nullptr) {
    say("software GPU: host code touches device memory: ");
    bad_address = address;
    say(describe_access().data());
    say("\n");
  }
  sigaction(signal, &memory().before, nullptr);
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &memory().before);
}

// Aborts if a byte between a block and the ends of its pages has changed.
void check_slack(const Extent& block) {
  const char* const end = block.first + block.pages * kPage;
  for (const char* at = block.first; at < end; ++at) {
    if (at == block.data) at += block.bytes;
    if (at == end || static_cast<unsigned char>(*at) == kSlack) continue;
    std::fprintf(stderr, "software GPU: a block of %zu bytes was written at byte %td\n", block.bytes,
                 at - block.data);
    std::abort();
  }
}

// Returns the first of `wanted` adjacent pages that no live block uses, or the number of pages if there are
// none.
size_t find_pages(Arena& arena, size_t wanted) {
  for (int pass = 0; pass < 2; ++pass) {
    size_t run = 0;
    for (size_t page = arena.next_page; page < arena.pages; ++page) {
      const uint32_t block = arena.block_of_page[page];
      run = block == 0 || !arena.blocks[block - 1].live ? run + 1 : 0;
      if (run == wanted) {
        arena.next_page = page + 1;
        return page + 1 - wanted;
      }
    }
    arena.next_page = 0;
  }
  return arena.pages;
}

}  // namespace

void* allocate_device(int device, size_t bytes, uint64_t capacity) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  Arena& arena = all.arenas[device];
  if (arena.base == nullptr) {
    static const bool installed = (install_handler(), true);
    static_cast<void>(installed);
    arena.range = std::max(kLeastRange, 2 * capacity);
    arena.pages = arena.range / kPage;
    arena.block_of_page = map_table<uint32_t>(arena.pages);
    arena.blocks = map_table<Extent>(kMostExtents);
    void* const base =
        mmap(nullptr, arena.range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    arena.base = static_cast<char*>(base);
    if (all.lowest == nullptr || arena.base < all.lowest) all.lowest = arena.base;
    if (arena.base + arena.range > all.highest) all.highest = arena.base + arena.range;
  }
  if (bytes > capacity || arena.bytes > capacity - bytes || arena.count == kMostExtents) return nullptr;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment,
               pages = (rounded + kPage - 1) / kPage;
  const size_t first = find_pages(arena, pages + 1);  // the last one stays protected
  if (first == arena.pages) return nullptr;
  Extent& block = arena.blocks[arena.count++];
  block.first = arena.base + first * kPage;
  block.pages = pages;
  block.data = block.first + pages * kPage - rounded;
  block.bytes = bytes;
  for (size_t page = first; page <= first + pages; ++page) arena.block_of_page[page] = arena.count;
  mprotect(block.first, pages * kPage, PROT_READ | PROT_WRITE);
  std::memset(block.first, kSlack, static_cast<size_t>(block.data - block.first));
  std::memset(block.data + bytes, kSlack, rounded - bytes);
  if (!modelled()) {
    std::memset(block.data, 0xff, std::min(bytes, kFilled));
    if (bytes > kFilled) std::memset(block.data + bytes - kFilled, 0xff, kFilled);
  }
  mprotect(block.first, pages * kPage, PROT_NONE);
  block.open = false;
  block.live = true;
  arena.bytes += bytes;
  ++arena.live;
  return block.data;
}

bool free_device(void* data) {
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const Arena* const found = arena_of(data);
  if (found == nullptr) return false;
  Arena& arena = const_cast<Arena&>(*found);
  Extent* const block = block_at(arena, data);
  if (block == nullptr || block->data != data || !block->live) return false;
  const Access access;
  check_slack(*block);
  block->live = false;
  madvise(block->first, block->pages * kPage, MADV_DONTNEED);
  arena.bytes -= block->bytes;
  --arena.live;
  return true;
}

uint64_t device_bytes(int device) {
  const std::lock_guard lock(memory().mutex);
  return memory().arenas[device].bytes;
}
int64_t device_blocks(int device) {
  const std::lock_guard lock(memory().mutex);
  return memory().arenas[device].live;
}

void* allocate_pinned(size_t bytes) {
  void* const data = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (data == nullptr) return nullptr;
  const std::lock_guard lock(memory().mutex);
  memory().pinned.emplace(reinterpret_cast<uintptr_t>(data), bytes);
  return data;
}
bool free_pinned(void* data) {
  {
    const std::lock_guard lock(memory().mutex);
    if (memory().pinned.erase(reinterpret_cast<uintptr_t>(data)) == 0) return false;
  }
  std::free(data);
  return true;
}
int64_t pinned_blocks() {
  const std::lock_guard lock(memory().mutex);
  return static_cast<int64_t>(memory().pinned.size());
}

Where where(const void* address) {
  const Unseen unseen;
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  if (const Arena* const arena = arena_of(address)) {
    const Extent* const block = block_at(*arena, address);
    const bool inside =
        block != nullptr && block->live && address >= block->data && address < block->data + block->bytes;
    return {Place::device, static_cast<int>(arena - all.arenas),
            inside ? static_cast<size_t>(block->data + block->bytes - static_cast<const char*>(address)) : 0,
            inside ? static_cast<size_t>(static_cast<const char*>(address) - block->data) : 0};
  }
  auto after = all.pinned.upper_bound(at);
  if (after != all.pinned.begin() && at < (--after)->first + after->second)
    return {Place::pinned, -1, after->first + after->second - at};
  return {};
}

bool is_device_address(const void* address) { return arena_of(address) != nullptr; }

bool is_plain_host_memory(uint64_t address) {
  if (address < kPage || address >> 47 != 0) return false;
  void* const at = reinterpret_cast<void*>(address);
  return where(at).place == Place::host &&
         msync(reinterpret_cast<void*>(address / kPage * kPage), 1, MS_ASYNC) == 0;
}

Access::Access() {
  if (accessing++ > 0) return;
  const Unseen unseen;
  const std::lock_guard lock(memory().access_mutex);
  ++memory().accesses;
}
Access::~Access() {
  if (--accessing > 0) return;
  const Unseen unseen;
  const std::lock_guard lock(memory().access_mutex);
  if (--memory().accesses > 0) return;
  for (Extent* block = memory().open.exchange(nullptr); block != nullptr; block = block->next_open) {
    mprotect(block->first, block->pages * kPage, PROT_NONE);
    block->open = false;
  }
}

std::array<char, 160> describe_access() {
  const Arena* const arena = arena_of(bad_address);
  std::array<char, 160> text;
  const auto print = [&](const char* format, auto... values) {
    std::snprintf(text.data(), text.size(), format, values...);
    return text;
  };
  if (arena == nullptr) return print("address %p is no memory of a device", static_cast<void*>(bad_address));
  const Extent* const block = block_at(*arena, bad_address);
  if (block == nullptr)
    return print("address %p of device %td was never given out", static_cast<void*>(bad_address),
                 arena - memory().arenas);
  if (!block->live)
    return print("%td bytes into a block of %zu bytes that was freed", bad_address - block->data,
                 block->bytes);
  if (bad_address >= block->data + block->bytes)
    return print("%td bytes beyond a block of %zu bytes",
                 bad_address - block->data - static_cast<std::ptrdiff_t>(block->bytes), block->bytes);
  return print("%td bytes into a block of %zu bytes", bad_address - block->data, block->bytes);
}

}  // namespace gpu_emulation
