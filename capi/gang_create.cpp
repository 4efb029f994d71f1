// Creates gangs.
#include <gangway/gang.h>

#include <algorithm>
#include <cstring>

#include "gang_start.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

// Reads the options of a new gang. `meets`: its ranks find each other by the options; otherwise a store and
// an id are ignored and an all_gather is refused.
GangOptions gang_options(const gw_gang_options& o, bool meets) {
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
    const char* const by = o.store != nullptr        ? "a store"
                           : o.id != nullptr         ? "an id"
                           : o.all_gather != nullptr ? "an all_gather"
                                                     : nullptr;
    if (by != nullptr) fail(Code::invalid_argument, "options has ", by, " but no rank and size");
    return g;
  }
  if (o.rank < 0 || o.rank >= o.size)
    fail(Code::invalid_argument, "options.rank ", o.rank, " is outside a gang of ", o.size);
  g.rank = o.rank;
  g.size = o.size;
  if (o.store != nullptr) {
    g.store = o.store->store;
  } else if (o.id != nullptr) {
    if (o.id_size != kIdBytes)
      fail(Code::invalid_argument, "options.id_size is ", o.id_size, ", a blob of gw_gang_id_create has ",
           kIdBytes);
    g.id.assign(static_cast<const char*>(o.id), kIdBytes);
  } else if (o.all_gather != nullptr && !meets) {
    fail(Code::invalid_argument, "options.all_gather is for gw_gang_create");
  } else if (o.all_gather == nullptr && o.size > 1) {
    fail(Code::invalid_argument, "options gives rank ", o.rank, " of ", o.size,
         " but no store, id or all_gather");
  }
  return g;
}

bool meets_by_all_gather(const gw_gang_options& o) {
  return o.all_gather != nullptr && o.store == nullptr && o.id == nullptr && o.size > 0;
}

gw_gang_options read_options(const gw_gang_options* given) {
  return read_struct(given, gw_gang_options_init, "options");
}

// Reads as much as possible of options that may be invalid. A rank that refuses its options still needs their
// all_gather, because its peers wait there for it.
gw_gang_options read_leniently(const gw_gang_options* given) {
  gw_gang_options o;
  gw_gang_options_init(&o, sizeof o);
  if (reaches_object(given)) std::memcpy(&o, given, std::min(given->struct_size, sizeof o));
  return o;
}

}  // namespace

void gw_gang_options_init(gw_gang_options* options, size_t size) {
  gw_gang_options d{};
  d.rank = -1;
  init_struct(options, size, d);
}

gw_status gw_gang_create(const gw_gang_options* options, gw_gang** out_gang) {
  const CallerObject user = object_of(options);
  return guarded([&] {
    if (out_gang != nullptr) *out_gang = nullptr;
    GangOptions g;
    auto refusal = error_thrown_by([&] {
      required(out_gang, "out_gang");
      g = gang_options(read_options(options), true);
    });
    const gw_gang_options o = read_leniently(options);
    const bool gathers = meets_by_all_gather(o);
    if (!gathers && refusal) throw *refusal;
    *out_gang = wrap(gathers ? create_by_all_gather(o, std::move(refusal), std::move(g)) : Gang::create(g));
  });
}

gw_status gw_gang_id_create(void* id, size_t capacity, size_t* out_size) {
  return guarded([&] {
    size_t& size = out(out_size, "out_size");
    required(static_cast<char*>(id), "id");
    if (capacity < kIdBytes)
      fail(Code::invalid_argument, "an id has ", kIdBytes, " bytes, capacity is ", capacity);
    make_id(id);
    size = kIdBytes;
  });
}

gw_status gw_gang_create_threads(int32_t count, const gw_gang_options* options, gw_gang* out_gangs[]) {
  const CallerObject user = object_of(options);
  return guarded([&] {
    required(out_gangs, "out_gangs");
    for (int32_t i = 0; i < count; ++i) out_gangs[i] = nullptr;
    auto gangs = Gang::create_threads(count, gang_options(read_options(options), false));
    std::vector<std::unique_ptr<gw_gang>> handles;
    for (auto& gang : gangs) handles.push_back(std::make_unique<gw_gang>(std::move(gang)));
    for (size_t i = 0; i < handles.size(); ++i) out_gangs[i] = handles[i].release();
  });
}

gw_status gw_gang_create_fake(int32_t rank, int32_t size, const gw_gang_options* options,
                              gw_gang** out_gang) {
  const CallerObject user = object_of(options);
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    result = wrap(Gang::create_fake(rank, size, gang_options(read_options(options), false), false));
  });
}

gw_status gw_gang_create_gang(gw_gang* gang, const int32_t* ranks, size_t rank_count, gw_gang** out_gang) {
  return guarded([&] {
    if (out_gang != nullptr) *out_gang = nullptr;
    Gang& parent = gang_of(gang);
    agreed(parent, [&] {
      out(out_gang, "out_gang");
      if (rank_count > 0) required(ranks, "ranks");
    });
    *out_gang = wrap(parent.create_gang(std::span<const int>(ranks, rank_count)));
  });
}

gw_status gw_gang_split(gw_gang* gang, int32_t color, int32_t key, gw_gang** out_gang) {
  return guarded([&] {
    if (out_gang != nullptr) *out_gang = nullptr;
    Gang& parent = gang_of(gang);
    agreed(parent, [&] { out(out_gang, "out_gang"); });
    *out_gang = wrap(parent.split(color, key));
  });
}

gw_status gw_gang_duplicate(gw_gang* gang, gw_gang** out_gang) {
  return guarded([&] {
    if (out_gang != nullptr) *out_gang = nullptr;
    Gang& parent = gang_of(gang);
    agreed(parent, [&] { out(out_gang, "out_gang"); });
    *out_gang = wrap(parent.duplicate());
  });
}
