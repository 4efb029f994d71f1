#include "ops/cpu/gemm_cache.h"

#include <sys/mman.h>

#include <new>
#include <unordered_map>

#include "ops/cpu/context.h"
#include "ops/cpu/dnnl_matmul.h"

namespace gangway::cpu {
namespace {

constexpr size_t kMostEntries = 1024;

struct SliceHash {
  size_t operator()(const GemmSlice& s) const {
    uint64_t h = 1469598103934665603ull;
    const auto mix = [&h](int64_t x) {
      h = (h ^ static_cast<uint64_t>(x)) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
    };
    for (int64_t x : {s.m, s.n, s.k, s.a_row, s.b_row, s.c_row}) mix(x);
    mix(static_cast<int64_t>(s.dtype));
    mix(static_cast<int64_t>(s.c_dtype));
    mix(s.transpose_a | s.transpose_b << 1 | s.bias << 2 | s.accumulate << 3);
    return static_cast<size_t>(h);
  }
};

// Describes a [rows, columns] operand. If it is stored transposed, `row` is the stride of its columns.
dnnl::memory::desc matrix(int64_t rows, int64_t columns, dnnl::memory::data_type type, int64_t row,
                          bool transposed) {
  return {{rows, columns}, type, transposed ? dnnl::memory::dims{1, row} : dnnl::memory::dims{row, 1}};
}

// oneDNN's generator of code ends the process where it gets no memory. So we ask for far more than a product
// takes, give it back, and report that there is none while that is still possible. It covers all but memory
// that another thread takes in between.
void check_room_for_code() {
  constexpr size_t kRoom = size_t{16} << 20;
  void* const room =
      mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  munmap(room, kRoom);
}

[[noreturn]] void refuse(const char* what, dnnl_status_t status) {
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  fail(Code::internal, what, ", status ", static_cast<int>(status));
}

}  // namespace

class GemmCache::Entry {
 public:
  // The memory objects that one pool thread points at its operands.
  struct Memories {
    dnnl::memory a, b, bias, c, scratchpad;
  };

  Entry(const GemmSlice& s, const dnnl::engine& engine, size_t threads) {
    const auto type = dnnl_type(s.dtype), c_type = dnnl_type(s.c_dtype);
    if (!type || !c_type) return;
    const dnnl::memory::desc a = matrix(s.m, s.k, *type, s.a_row, s.transpose_a);
    const dnnl::memory::desc b = matrix(s.k, s.n, *type, s.b_row, s.transpose_b);
    const dnnl::memory::desc c = matrix(s.m, s.n, *c_type, s.c_row, false);
    const dnnl::memory::desc bias = matrix(1, s.n, *type, s.n, false);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const auto made = make_matmul(engine, a, b, s.bias ? &bias : nullptr, c, attributes);
    if (!made) return;
    product_ = dnnl::matmul(made);
    scratchpad_bytes_ = made.scratchpad_desc().get_size();
    memories_.resize(threads);
    for (Memories& m : memories_) {
      m.a = dnnl::memory(a, engine, nullptr);
      m.b = dnnl::memory(b, engine, nullptr);
      m.c = dnnl::memory(c, engine, nullptr);
      if (s.bias) m.bias = dnnl::memory(bias, engine, nullptr);
      m.scratchpad = dnnl::memory(made.scratchpad_desc(), engine, nullptr);
    }
  }

  bool exists() const { return !memories_.empty(); }

  void run(const dnnl::stream& stream, int thread, const GemmPointers& p, Scratch& scratch) const {
    const Memories& m = memories_[static_cast<size_t>(thread)];
    point(m.a, p.a);
    point(m.b, p.b);
    point(m.c, p.c);
    point(m.scratchpad, scratchpad_bytes_ == 0 ? nullptr : scratch.of<char>(thread, scratchpad_bytes_));
    dnnl_exec_arg_t args[5] = {{DNNL_ARG_SRC, m.a.get()},
                               {DNNL_ARG_WEIGHTS, m.b.get()},
                               {DNNL_ARG_DST, m.c.get()},
                               {DNNL_ARG_SCRATCHPAD, m.scratchpad.get()},
                               {}};
    int count = 4;
    if (p.bias != nullptr) {
      point(m.bias, p.bias);
      args[count++] = {DNNL_ARG_BIAS, m.bias.get()};
    }
    const dnnl_status_t status = dnnl_primitive_execute(product_.get(), stream.get(), count, args);
    if (status != dnnl_success) refuse("a product of oneDNN failed", status);
  }

 private:
  static void point(const dnnl::memory& memory, const void* data) {
    const dnnl_status_t status = dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(data));
    if (status != dnnl_success) refuse("oneDNN took no pointer", status);
  }

  dnnl::matmul product_;
  size_t scratchpad_bytes_ = 0;
  std::vector<Memories> memories_;
};

bool vendor_has(VendorIsa isa) {
  switch (isa) {
    case VendorIsa::avx2: return onednn_has(dnnl::cpu_isa::avx2);
    case VendorIsa::avx512: return onednn_has(dnnl::cpu_isa::avx512_core);
    case VendorIsa::avx512_bf16: return onednn_has(dnnl::cpu_isa::avx512_core_bf16);
  }
  fail(Code::internal, "vendor_has: ", static_cast<int>(isa));
}

struct GemmCache::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::vector<dnnl::stream> streams;  // one for each thread
  std::unordered_map<GemmSlice, std::unique_ptr<Entry>, SliceHash> entries;
};

GemmCache::GemmCache(int threads) : state_(std::make_unique<State>()) {
  for (int t = 0; t < threads; ++t) state_->streams.emplace_back(state_->engine);
}
GemmCache::~GemmCache() = default;

void GemmCache::begin() {
  slices_.clear();
  if (state_->entries.size() > kMostEntries) state_->entries.clear();
}

const GemmCache::Entry* GemmCache::find(const GemmSlice& slice) {
  const auto found = state_->entries.find(slice);
  if (found != state_->entries.end()) return found->second->exists() ? found->second.get() : nullptr;
  check_room_for_code();
  try {
    auto made = std::make_unique<Entry>(slice, state_->engine, state_->streams.size());
    const Entry* entry = made->exists() ? made.get() : nullptr;
    state_->entries.emplace(slice, std::move(made));
    return entry;
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw std::bad_alloc();
    fail(Code::internal, "oneDNN makes no product ", slice.m, " x ", slice.n, " x ", slice.k, ": ", e.what());
  }
}

void GemmCache::run(const Entry& entry, int thread, const GemmPointers& pointers, Scratch& scratch) const {
  entry.run(state_->streams[static_cast<size_t>(thread)], thread, pointers, scratch);
}

}  // namespace gangway::cpu
