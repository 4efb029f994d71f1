#include <gangway/mesh.h>

#include <cerrno>

#include "gang_handle.h"
#include "mesh/current.h"
#include "mesh_handle.h"

using namespace gangway;
using namespace gangway::capi;

void gw_mesh_options_init(gw_mesh_options* options, size_t size) {
  gw_mesh_options d{};
  d.pp = d.dp_replicate = d.cp = d.tp = 1;
  d.dp_shard = -1;
  init_struct(options, size, d);
}

gw_status gw_mesh_options_preset(gw_mesh_options* options, const char* preset, int32_t node_size) {
  return guarded([&] {
    check_out_struct(options, "options");
    const MeshOptions degrees = mesh_preset(&required(preset, "preset"), node_size);
    gw_mesh_options filled = read_struct(options, gw_mesh_options_init, "options");
    filled.pp = degrees.pp;
    filled.dp_replicate = degrees.dp_replicate;
    filled.dp_shard = degrees.dp_shard;
    filled.cp = degrees.cp;
    filled.tp = degrees.tp;
    write_struct(options, filled);
  });
}

gw_status gw_gangs_create(gw_gang* root, const gw_mesh_options* options, gw_gangs** out_gangs) {
  return guarded([&] {
    if (out_gangs != nullptr) *out_gangs = nullptr;
    gw_mesh_options o{};
    const auto read = [&] {
      out(out_gangs, "out_gangs");
      o = read_struct(options, gw_mesh_options_init, "options");
    };
    if (root != nullptr)
      agreed(*root->gang, read);
    else
      read();
    MeshOptions m;
    m.pp = o.pp;
    m.dp_replicate = o.dp_replicate;
    m.dp_shard = o.dp_shard;
    m.cp = o.cp;
    m.tp = o.tp;
    *out_gangs = new gw_gangs(create_gangs(root != nullptr ? root->gang : nullptr, m));
  });
}

gw_status gw_gangs_create_parallel(gw_gang* root, int32_t tp, int32_t pp, int32_t cp, gw_gangs** out_gangs) {
  return guarded([&] {
    if (out_gangs != nullptr) *out_gangs = nullptr;
    const GangPtr gang = required(root, "root").gang;
    agreed(*gang, [&] { out(out_gangs, "out_gangs"); });
    *out_gangs = new gw_gangs(create_parallel_gangs(gang, tp, pp, cp));
  });
}

gw_status gw_gangs_create_fsdp(gw_gangs* gangs, int32_t intra_node_size, gw_gangs** out_gangs) {
  return guarded([&] {
    if (out_gangs != nullptr) *out_gangs = nullptr;
    Gangs& whole = *required(gangs, "gangs").gangs;
    agreed(*whole.root(), [&] { out(out_gangs, "out_gangs"); });
    std::optional<int> size;
    if (intra_node_size != 0) size = intra_node_size;
    *out_gangs = new gw_gangs(create_fsdp_gangs(whole, size));
  });
}

void gw_gang_places_init(gw_gang_places* places, size_t size) { start_struct(places, size); }

gw_status gw_gangs_create_of(const gw_gang_places* places, gw_gangs** out_gangs) {
  return guarded([&] {
    if (out_gangs != nullptr) *out_gangs = nullptr;
    const gw_gang_places p = read_struct(&required(places, "places"), gw_gang_places_init, "places");
    const auto gang = [](gw_gang* given) { return given != nullptr ? given->gang : nullptr; };
    if (p.root != nullptr) agreed(*p.root->gang, [&] { out(out_gangs, "out_gangs"); });
    *out_gangs = new gw_gangs(create_gangs_of(
        {gang(p.root), gang(p.dp), gang(p.rdp), gang(p.sdp), gang(p.tp), gang(p.pp), gang(p.cp)}));
  });
}

gw_status gw_gangs_create_fake(const char* device, gw_gangs** out_gangs) {
  return guarded([&] {
    gw_gangs*& result = out(out_gangs, "out_gangs");
    result = new gw_gangs(create_fake_gangs(text_or(device, "cpu")));
  });
}

gw_gangs* gw_gangs_retain(gw_gangs* gangs) { return retain(gangs); }
void gw_gangs_release(gw_gangs* gangs) { release(gangs); }

gw_status gw_gangs_get(gw_gangs* gangs, const char* axes, gw_gang** out_gang) {
  return guarded([&] {
    gw_gang*& result = out(out_gang, "out_gang");
    Gangs& g = *required(gangs, "gangs").gangs;
    const std::string name = &required(axes, "axes");
    result = wrap(name == "root" ? g.root() : g.by_axes(name));
  });
}

gw_status gw_gangs_coordinate(const gw_gangs* gangs, const char* axis, int32_t* out_index,
                              int32_t* out_degree) {
  return guarded([&] {
    int32_t& index = out(out_index, "out_index");
    int32_t& degree = out(out_degree, "out_degree");
    const Gangs& g = *required(gangs, "gangs").gangs;
    const AxisSet set = parse_axes(&required(axis, "axis"));
    for (int a = 0; a < kAxes; ++a) {
      if (set != axis_bit(static_cast<Axis>(a))) continue;
      index = g.coordinate(static_cast<Axis>(a));
      degree = g.mesh().degree(static_cast<Axis>(a));
      return;
    }
    fail(Code::invalid_argument, "axis \"", axis, "\" is a product; a coordinate is of one axis");
  });
}

gw_status gw_gangs_data_shard(const gw_gangs* gangs, int32_t* out_index, int32_t* out_count) {
  return guarded([&] {
    int32_t& index = out(out_index, "out_index");
    int32_t& count = out(out_count, "out_count");
    required(gangs, "gangs").gangs->data_shard(&index, &count);
  });
}

gw_status gw_gangs_shutdown(gw_gangs* gangs, int64_t timeout_ms) {
  return guarded([&] { required(gangs, "gangs").gangs->close(timeout_ms); });
}

gw_status gw_gangs_abort(gw_gangs* gangs, const char* reason) {
  // As gw_gang_abort.
  if (gangs == nullptr || forked_child())
    return guarded([&] { static_cast<void>(required(gangs, "gangs")); });
  const int error_of_the_interrupted = errno;
  gangs->gangs->abort(reason != nullptr ? reason : "no reason given");
  errno = error_of_the_interrupted;
  return GW_OK;
}

gw_status gw_gangs_push_current(gw_gangs* gangs) {
  return guarded([&] { push_current_gangs(required(gangs, "gangs").gangs); });
}

gw_status gw_gangs_pop_current(gw_gangs* gangs) {
  return guarded([&] { pop_current_gangs(required(gangs, "gangs").gangs.get()); });
}

gw_status gw_gangs_current(const char* device, gw_gangs** out_gangs) {
  return guarded([&] {
    gw_gangs*& result = out(out_gangs, "out_gangs");
    GangsPtr current = device == nullptr ? maybe_current_gangs() : current_gangs(device);
    if (current) result = new gw_gangs(std::move(current));
  });
}

gw_status gw_gangs_set_default(const char* device, gw_gangs* gangs) {
  return guarded(
      [&] { set_default_gangs(&required(device, "device"), gangs != nullptr ? gangs->gangs : nullptr); });
}
