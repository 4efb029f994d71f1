// Stores, and the creation of gangs.
#include <gangway/gang.h>

#include <openssl/rand.h>

#include "base/config.h"
#include "gang/tcp_store.h"
#include "gang_handle.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

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
  t.timeout_ms = o.timeout_ms > 0 ? o.timeout_ms : config().timeout_ms;
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
  if (o.rank == -1) {
    if (o.size != 0) fail(Code::invalid_argument, "options gives size ", o.size, " but no rank");
    if (o.store != nullptr || o.id != nullptr)
      fail(Code::invalid_argument, "options has a ", o.store != nullptr ? "store" : "id",
           " but no rank and size");
    return g;
  }
  if (o.rank < 0 || o.rank >= o.size)
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

}  // namespace

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
