#include <gangway/gang.h>

#include <openssl/rand.h>

#include <map>

#include "bytes.h"
#include "gang/tcp_store.h"
#include "gang_handle.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(CollectiveOp::recv) == GW_RECV &&
              static_cast<int>(CollectiveOp::reduce) == GW_REDUCE);
static_assert(static_cast<int>(Reduce::sum) == GW_SUM && static_cast<int>(Reduce::max) == GW_MAX);

namespace {

// --- options
// ---------------------------------------------------------------------------------------------------------

// An id blob: the secret that authenticates ranks and a random name that keeps jobs apart.
constexpr size_t kIdBytes = 64;

std::shared_ptr<Store> store_from_id(const gw_gang_options& o) {
  if (o.id_size != kIdBytes)
    fail(Code::invalid_argument, "options.id_size is ", o.id_size, ", a blob of gw_gang_id_create has ",
         kIdBytes);
  TcpStoreOptions t;
  const char* bytes = static_cast<const char*>(o.id);
  std::memcpy(t.secret.data(), bytes, t.secret.size());
  t.job.assign(bytes + t.secret.size(), kIdBytes - t.secret.size());
  t.rank = o.rank;
  t.size = o.size;
  if (o.timeout_ms > 0) t.timeout_ms = o.timeout_ms;
  return make_tcp_store(t);
}

GangOptions gang_options(const gw_gang_options* given) {
  const gw_gang_options o = read_struct(given, gw_gang_options_init, "options");
  if (o.timeout_ms < 0) fail(Code::invalid_argument, "options.timeout_ms is ", o.timeout_ms);
  if (o.liveness_ms < 0) fail(Code::invalid_argument, "options.liveness_ms is ", o.liveness_ms);
  if (o.threads < 0) fail(Code::invalid_argument, "options.threads is ", o.threads);
  if (o.expected_size < 0) fail(Code::invalid_argument, "options.expected_size is ", o.expected_size);
  GangOptions g;
  g.device = text_or(o.device, "cpu");
  g.engine = text_or(o.engine, "auto");
  g.name = text_or(o.name, "gang");
  g.timeout_ms = o.timeout_ms;
  g.liveness_ms = o.liveness_ms;
  g.arena_bytes = o.arena_bytes;
  g.memory_limit = o.memory_limit;
  g.high_priority = o.high_priority != 0;
  g.expected_size = o.expected_size;
  g.threads = o.threads;
  if (o.rank < 0) {
    if (o.store != nullptr || o.id != nullptr)
      fail(Code::invalid_argument, "options has a ", o.store != nullptr ? "store" : "id",
           " but no rank and size");
    return g;
  }
  if (o.size < 1 || o.rank >= o.size)
    fail(Code::invalid_argument, "options.rank ", o.rank, " is outside a gang of ", o.size);
  g.rank = o.rank;
  g.size = o.size;
  if (o.store != nullptr) {
    g.store = o.store->store;
  } else if (o.id != nullptr) {
    g.store = store_from_id(o);
  } else if (o.size > 1) {
    fail(Code::invalid_argument, "options gives rank ", o.rank, " of ", o.size, " but neither store nor id");
  }
  return g;
}

// --- collectives
// -----------------------------------------------------------------------------------------------------

// Starts the records; waits for them, or hands out the work.
void start(gw_gang* handle, std::span<const Collective> records, void* stream, gw_work** out_work) {
  Gang& gang = gang_of(handle);
  check_stream(stream, gang.device());
  std::unique_ptr<gw_work> work;
  if (out_work != nullptr) work = std::make_unique<gw_work>(nullptr, handle->gang);
  WorkPtr started = gang.run(Channel::user, records);
  if (!work) {
    gang.finish(*started);
    settle_released(gang);
    return;
  }
  work->work = std::move(started);
  *out_work = work.release();
}

gw_status plain(gw_gang* gang, const Collective& record, void* stream) {
  return guarded([&] { start(gang, std::span(&record, 1), stream, nullptr); });
}

gw_status async(gw_gang* gang, const Collective& record, void* stream, gw_work** out_work) {
  return guarded([&] {
    out(out_work, "out_work");
    start(gang, std::span(&record, 1), stream, out_work);
  });
}

Collective make(CollectiveOp op, const void* input, void* output, size_t count, gw_dtype dtype,
                gw_reduce reduce = GW_REDUCE_NONE, int32_t peer = -1) {
  Collective c;
  c.op = op;
  c.in = input;
  c.out = output;
  c.count = count;
  c.dtype = static_cast<DType>(dtype);  // the gang's own check names what it cannot move
  // An unknown number becomes one that the gang refuses.
  c.reduce = reduce >= GW_REDUCE_NONE && reduce <= GW_MAX ? static_cast<Reduce>(reduce) : Reduce{0xff};
  c.peer = peer;
  return c;
}

Collective from_record(const gw_collective& r) {
  if (r.op < GW_BARRIER || r.op > GW_RECV)
    fail(Code::invalid_argument, "record.op is ", r.op, ", not 0 to ", GW_RECV);
  Collective c = make(static_cast<CollectiveOp>(r.op), r.input, r.output, r.count, r.dtype, r.reduce, r.peer);
  c.counts = r.counts;
  c.accumulate = r.accumulate != 0;
  return c;
}

// --- memory of gangs
// -------------------------------------------------------------------------------------------------

// Address -> block. Global, because a block outlives the gang it came from and is freed by its address alone. Ranks that
// are threads see a shared region at one address: each has its own entry, and each free drops one.
struct Allocations {
  std::mutex mutex;
  std::multimap<void*, std::shared_ptr<Buffer>> blocks;
};
Allocations& allocations() {
  static Allocations* const a = new Allocations;
  return *a;
}

void hand_out(const std::shared_ptr<Buffer>& buffer, void** out_data) {
  Allocations& a = allocations();
  const std::lock_guard lock(a.mutex);
  a.blocks.emplace(buffer->data(), buffer);
  *out_data = buffer->data();
}

}  // namespace

// --- stores
// ----------------------------------------------------------------------------------------------------------

gw_status gw_store_create_file(const char* folder, gw_store** out_store) {
  return guarded([&] {
    gw_store*& result = out(out_store, "out_store");
    result = new gw_store(make_file_store(&required(folder, "folder")));
  });
}

void gw_store_callbacks_init(gw_store_callbacks* callbacks, size_t size) { start_struct(callbacks, size); }

gw_status gw_store_create_callbacks(const gw_store_callbacks* callbacks, gw_store** out_store) {
  CallerObject owned;
  if (callbacks != nullptr && callbacks->struct_size >= sizeof *callbacks &&
      callbacks->struct_size <= kLargestStruct)  // one that was never set up holds no object
    owned = CallerObject(callbacks->user, callbacks->free_user);
  return guarded([&] {
    gw_store*& result = out(out_store, "out_store");
    const gw_store_callbacks c =
        read_struct(&required(callbacks, "callbacks"), gw_store_callbacks_init, "callbacks");
    if (c.put == nullptr || c.get == nullptr || c.remove == nullptr)
      fail(Code::invalid_argument, "callbacks needs put, get and remove");
    StoreCallbacks s{c.put, c.get, c.remove, c.user, nullptr};
    auto store = make_callback_store(s);
    // The user object lives as long as the store.
    const auto user = std::make_shared<CallerObject>(std::move(owned));
    result =
        new gw_store(std::shared_ptr<Store>(store.get(), [store, user](Store*) mutable { store.reset(); }));
  });
}

void gw_store_release(gw_store* store) { release(store); }

// --- creation
// --------------------------------------------------------------------------------------------------------

void gw_gang_options_init(gw_gang_options* options, size_t size) {
  gw_gang_options d{};
  d.rank = -1;
  init_struct(options, size, d);
}

gw_status gw_gang_create(const gw_gang_options* options, gw_gang** out_gang) {
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    result = wrap(Gang::create(gang_options(options)));
  });
}

gw_status gw_gang_id_create(void* id, size_t capacity, size_t* out_size) {
  return guarded([&] {
    size_t& size = out(out_size, "out_size");
    required(static_cast<char*>(id), "id");
    if (capacity < kIdBytes)
      fail(Code::invalid_argument, "an id has ", kIdBytes, " bytes, capacity is ", capacity);
    if (RAND_bytes(static_cast<unsigned char*>(id), kIdBytes) != 1)
      fail(Code::internal, "libcrypto gave no random bytes");
    size = kIdBytes;
  });
}

gw_status gw_gang_create_threads(int32_t count, const gw_gang_options* options, gw_gang** out_gangs) {
  return guarded([&] {
    required(out_gangs, "out_gangs");
    for (int32_t i = 0; i < count; ++i) out_gangs[i] = nullptr;
    auto gangs = Gang::create_threads(count, gang_options(options));
    std::vector<std::unique_ptr<gw_gang>> handles;
    for (auto& gang : gangs) handles.push_back(std::make_unique<gw_gang>(std::move(gang)));
    for (size_t i = 0; i < handles.size(); ++i) out_gangs[i] = handles[i].release();
  });
}

gw_status gw_gang_create_fake(int32_t rank, int32_t size, const gw_gang_options* options,
                              gw_gang** out_gang) {
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    result = wrap(Gang::create_fake(rank, size, gang_options(options), false));
  });
}

gw_status gw_gang_create_gang(gw_gang* gang, const int32_t* ranks, size_t rank_count, gw_gang** out_gang) {
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    Gang& parent = gang_of(gang);
    agreed(parent, [&] {
      if (rank_count > 0) required(ranks, "ranks");
    });
    result = wrap(parent.create_gang(std::span<const int>(ranks, rank_count)));
  });
}

gw_status gw_gang_split(gw_gang* gang, int32_t color, int32_t key, gw_gang** out_gang) {
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    result = wrap(gang_of(gang).split(color, key));
  });
}

gw_status gw_gang_duplicate(gw_gang* gang, gw_gang** out_gang) {
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    result = wrap(gang_of(gang).duplicate());
  });
}

gw_gang* gw_gang_retain(gw_gang* gang) { return retain(gang); }
void gw_gang_release(gw_gang* gang) { release(gang); }

// --- facts
// -----------------------------------------------------------------------------------------------------------

int32_t gw_gang_rank(const gw_gang* gang) { return gang != nullptr ? gang->gang->rank() : -1; }
int32_t gw_gang_size(const gw_gang* gang) { return gang != nullptr ? gang->gang->size() : -1; }
const char* gw_gang_name(const gw_gang* gang) { return gang != nullptr ? gang->gang->name().c_str() : ""; }
const char* gw_gang_engine(const gw_gang* gang) { return gang != nullptr ? gang->gang->engine_name() : ""; }
const char* gw_gang_device(const gw_gang* gang) {
  if (gang == nullptr) return "";
  switch (gang->gang->device().kind()) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::meta:
      return "meta";
  }
  return "";
}

gw_status gw_gang_native_handle(gw_gang* gang, void** out_handle) {
  return guarded([&] {
    void*& result = out(out_handle, "out_handle");
    result = gang_of(gang).engine().native_handle();
    if (result == nullptr)
      fail(Code::not_supported, "engine \"", gang_of(gang).engine_name(), "\" has no native handle");
  });
}

void gw_gang_traffic_init(gw_gang_traffic* traffic, size_t size) { start_struct(traffic, size); }

gw_status gw_gang_get_traffic(const gw_gang* gang, gw_gang_traffic* traffic) {
  return guarded([&] {
    required(gang, "gang");
    check_out_struct(traffic, "traffic");
    const Traffic t = gang->gang->traffic();
    write_struct(traffic, gw_gang_traffic{0, nullptr, t.calls, t.bytes_moved, t.bytes_staged});
  });
}

// --- memory
// ----------------------------------------------------------------------------------------------------------

gw_status gw_gang_alloc(gw_gang* gang, size_t bytes, void** out_data) {
  return guarded([&] {
    out(out_data, "out_data");
    Gang& g = gang_of(gang);
    hand_out(Buffer::allocate(g.allocator(), bytes > 0 ? bytes : 1), out_data);
  });
}

gw_status gw_gang_free(gw_gang*, void* data) {
  std::shared_ptr<Buffer> last;  // freed outside of the lock
  return guarded([&] {
    if (data == nullptr) return;
    Allocations& a = allocations();
    const std::lock_guard lock(a.mutex);
    const auto it = a.blocks.find(data);
    if (it == a.blocks.end()) fail(Code::invalid_argument, "data ", data, " is not memory of gw_gang_alloc");
    last = std::move(it->second);
    a.blocks.erase(it);
  });
}

gw_status gw_gang_alloc_shared(gw_gang* gang, size_t bytes, void** out_data) {
  return guarded([&] {
    out(out_data, "out_data");
    hand_out(gang_of(gang).allocate_shared(bytes > 0 ? bytes : 1).writable, out_data);
  });
}

// --- collectives
// -----------------------------------------------------------------------------------------------------

void gw_collective_init(gw_collective* record, size_t size) {
  gw_collective d{};
  d.op = GW_OP_INVALID;
  d.peer = -1;
  init_struct(record, size, d);
}

gw_status gw_gang_run(gw_gang* gang, const gw_collective* record, void* stream, gw_work** out_work) {
  return gw_gang_run_batch(gang, record, 1, stream, out_work);
}

gw_status gw_gang_run_batch(gw_gang* gang, const gw_collective* records, size_t record_count, void* stream,
                            gw_work** out_work) {
  return guarded([&] {
    if (out_work != nullptr) *out_work = nullptr;
    if (record_count > 0) required(records, "records");
    std::vector<Collective> all;
    for (size_t i = 0; i < record_count; ++i)
      all.push_back(from_record(read_element(records, i, gw_collective_init, "records")));
    start(gang, all, stream, out_work);
  });
}

gw_status gw_gang_barrier(gw_gang* gang, void* stream) {
  return plain(gang, make(CollectiveOp::barrier, nullptr, nullptr, 0, GW_U8), stream);
}
gw_status gw_gang_barrier_async(gw_gang* gang, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::barrier, nullptr, nullptr, 0, GW_U8), stream, out_work);
}

gw_status gw_gang_all_reduce(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                             gw_reduce reduce, void* stream) {
  return plain(gang, make(CollectiveOp::all_reduce, input, output, count, dtype, reduce), stream);
}
gw_status gw_gang_all_reduce_async(gw_gang* gang, const void* input, void* output, size_t count,
                                   gw_dtype dtype, gw_reduce reduce, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::all_reduce, input, output, count, dtype, reduce), stream, out_work);
}

gw_status gw_gang_all_gather(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                             void* stream) {
  return plain(gang, make(CollectiveOp::all_gather, input, output, count, dtype), stream);
}
gw_status gw_gang_all_gather_async(gw_gang* gang, const void* input, void* output, size_t count,
                                   gw_dtype dtype, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::all_gather, input, output, count, dtype), stream, out_work);
}

gw_status gw_gang_all_gather_list(gw_gang* gang, const void* input, void* const* outputs, size_t count,
                                  gw_dtype dtype, void* stream) {
  return guarded([&] {
    required(outputs, "outputs");
    // One launch of a broadcast by each rank: straight into the caller's buffers.
    const int size = gang_of(gang).size();
    std::vector<Collective> all;
    for (int r = 0; r < size; ++r)
      all.push_back(make(CollectiveOp::broadcast, input, outputs[r], count, dtype, GW_REDUCE_NONE, r));
    start(gang, all, stream, nullptr);
  });
}

gw_status gw_gang_reduce_scatter(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                                 gw_reduce reduce, void* stream) {
  return plain(gang, make(CollectiveOp::reduce_scatter, input, output, count, dtype, reduce), stream);
}
gw_status gw_gang_reduce_scatter_async(gw_gang* gang, const void* input, void* output, size_t count,
                                       gw_dtype dtype, gw_reduce reduce, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::reduce_scatter, input, output, count, dtype, reduce), stream,
               out_work);
}

gw_status gw_gang_broadcast(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                            int32_t root, void* stream) {
  return plain(gang, make(CollectiveOp::broadcast, input, output, count, dtype, GW_REDUCE_NONE, root),
               stream);
}
gw_status gw_gang_broadcast_async(gw_gang* gang, const void* input, void* output, size_t count,
                                  gw_dtype dtype, int32_t root, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::broadcast, input, output, count, dtype, GW_REDUCE_NONE, root), stream,
               out_work);
}

gw_status gw_gang_reduce(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                         gw_reduce reduce, int32_t root, void* stream) {
  return plain(gang, make(CollectiveOp::reduce, input, output, count, dtype, reduce, root), stream);
}
gw_status gw_gang_reduce_async(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                               gw_reduce reduce, int32_t root, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::reduce, input, output, count, dtype, reduce, root), stream, out_work);
}

gw_status gw_gang_gather(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                         int32_t root, void* stream) {
  return plain(gang, make(CollectiveOp::gather, input, output, count, dtype, GW_REDUCE_NONE, root), stream);
}
gw_status gw_gang_gather_async(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                               int32_t root, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::gather, input, output, count, dtype, GW_REDUCE_NONE, root), stream,
               out_work);
}

gw_status gw_gang_scatter(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                          int32_t root, void* stream) {
  return plain(gang, make(CollectiveOp::scatter, input, output, count, dtype, GW_REDUCE_NONE, root), stream);
}
gw_status gw_gang_scatter_async(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                                int32_t root, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::scatter, input, output, count, dtype, GW_REDUCE_NONE, root), stream,
               out_work);
}

gw_status gw_gang_all_to_all(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                             void* stream) {
  return plain(gang, make(CollectiveOp::all_to_all, input, output, count, dtype), stream);
}
gw_status gw_gang_all_to_all_async(gw_gang* gang, const void* input, void* output, size_t count,
                                   gw_dtype dtype, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::all_to_all, input, output, count, dtype), stream, out_work);
}

gw_status gw_gang_send(gw_gang* gang, const void* input, size_t count, gw_dtype dtype, int32_t peer,
                       void* stream) {
  return plain(gang, make(CollectiveOp::send, input, nullptr, count, dtype, GW_REDUCE_NONE, peer), stream);
}
gw_status gw_gang_send_async(gw_gang* gang, const void* input, size_t count, gw_dtype dtype, int32_t peer,
                             void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::send, input, nullptr, count, dtype, GW_REDUCE_NONE, peer), stream,
               out_work);
}
gw_status gw_gang_recv(gw_gang* gang, void* output, size_t count, gw_dtype dtype, int32_t peer,
                       void* stream) {
  return plain(gang, make(CollectiveOp::recv, nullptr, output, count, dtype, GW_REDUCE_NONE, peer), stream);
}
gw_status gw_gang_recv_async(gw_gang* gang, void* output, size_t count, gw_dtype dtype, int32_t peer,
                             void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::recv, nullptr, output, count, dtype, GW_REDUCE_NONE, peer), stream,
               out_work);
}

gw_status gw_gang_broadcast_bytes(gw_gang* gang, const void* data, size_t size, int32_t root,
                                  gw_bytes** out_bytes) {
  return guarded([&] {
    gw_bytes*& result = out(out_bytes, "out_bytes");
    Gang& g = gang_of(gang);
    std::string value;
    if (g.rank() == root && size > 0)
      value.assign(static_cast<const char*>(&required(static_cast<const char*>(data), "data")), size);
    result = new gw_bytes{g.broadcast_bytes(Channel::user, value, root)};
  });
}

gw_status gw_gang_all_gather_bytes(gw_gang* gang, const void* data, size_t size, size_t* out_sizes,
                                   gw_bytes** out_bytes) {
  return guarded([&] {
    gw_bytes*& result = out(out_bytes, "out_bytes");
    Gang& g = gang_of(gang);
    required(out_sizes, "out_sizes");
    std::string mine;
    if (size > 0) mine.assign(&required(static_cast<const char*>(data), "data"), size);
    auto bytes = std::make_unique<gw_bytes>();
    const std::vector<std::string> all = g.all_gather_bytes(Channel::user, mine);
    for (size_t r = 0; r < all.size(); ++r) {
      out_sizes[r] = all[r].size();
      bytes->data += all[r];
    }
    result = bytes.release();
  });
}

gw_status gw_gang_broadcast_flag(gw_gang* gang, int32_t flag, int32_t root, int32_t* out_flag) {
  return guarded([&] {
    int32_t& result = out(out_flag, "out_flag");
    int32_t value = flag != 0 ? 1 : 0;
    const Collective record = make(CollectiveOp::broadcast, &value, &value, 1, GW_I32, GW_REDUCE_NONE, root);
    start(gang, std::span(&record, 1), nullptr, nullptr);
    result = value;
  });
}

gw_status gw_gang_all_sum(gw_gang* gang, double value, double* out_sum) {
  return guarded([&] {
    double& result = out(out_sum, "out_sum");
    result = gang_of(gang).all_sum(Channel::user, value);
  });
}

// --- ends
// ------------------------------------------------------------------------------------------------------------

gw_status gw_gang_shutdown(gw_gang* gang, int64_t timeout_ms) {
  return guarded([&] { gang_of(gang).shutdown(timeout_ms); });
}

gw_status gw_gang_abort(gw_gang* gang, const char* reason) {
  return guarded([&] { gang_of(gang).abort(text_or(reason, "no reason given")); });
}

gw_status gw_gang_async_error(gw_gang* gang) {
  return guarded([&] {
    if (const auto error = gang_of(gang).error()) throw *error;
  });
}

gw_status gw_gang_shrink(gw_gang* gang, const int32_t* survivors, size_t survivor_count, gw_gang** out_gang) {
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    if (survivor_count > 0) required(survivors, "survivors");
    result = wrap(gang_of(gang).shrink(std::span<const int>(survivors, survivor_count)));
  });
}

gw_status gw_gang_flight_record(const gw_gang* gang, char* text, size_t capacity, size_t* out_len) {
  return guarded([&] {
    required(gang, "gang");
    std::string all;
    for (const FlightEntry& e : gang->gang->flight_record())
      all += gangway::text(name(e.channel), " ", name(e.op), " #", e.sequence, " ", e.bytes, " bytes, start ",
                           e.start_ns, " ns, end ", e.end_ns, " ns, ", e.state, "\n");
    copy_text(all, text, capacity, out_len);
  });
}
