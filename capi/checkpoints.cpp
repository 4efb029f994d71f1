// The checkpoints of a run.
#include <gangway/checkpoints.h>

#include "checkpoint/run/checkpoints.h"
#include "module_handle.h"

using namespace gangway;
using namespace gangway::capi;

struct gw_checkpoints : Handle {
  gw_checkpoints(GangsPtr gangs, const CheckpointsOptions& options)
      : checkpoints(std::move(gangs), options) {}
  const Use& thread_use() const { return use; }
  const Use use = new_use();
  Checkpoints checkpoints;
  std::optional<RestoreReport> restored;
};

namespace {

CheckpointsOptions options_of(const gw_checkpoints_options* options, const char* folder) {
  const gw_checkpoints_options o = read_struct(options, gw_checkpoints_options_init, "options");
  CheckpointsOptions c;
  c.folder = &required(folder, "folder");
  c.keep = o.keep;
  c.every = o.every;
  c.synchronous = o.synchronous != 0;
  if (o.max_file_bytes < 0)
    fail(Code::invalid_argument, "options.max_file_bytes is ", o.max_file_bytes, ", below 0");
  c.max_file_bytes = static_cast<uint64_t>(o.max_file_bytes);
  c.model_dtype = optional_dtype(o.model_dtype);
  c.job = text_or(o.job, "");
  c.timeout_ms = o.timeout_ms;
  return c;
}

std::vector<CheckpointPart> parts_of(const gw_checkpoint_part* parts, size_t count) {
  if (count > 0) required(parts, "parts");
  std::vector<CheckpointPart> all;
  for (size_t i = 0; i < count; ++i) {
    const gw_checkpoint_part p = read_element(parts, i, gw_checkpoint_part_init, "parts");
    all.push_back(
        {text_or(p.name, ""), &required(p.model, "parts[i].model").ready(),
         p.optimizer != nullptr ? required(p.optimizer, "parts[i].optimizer").optimizer.get() : nullptr,
         text_or(p.carry_from, "")});
  }
  return all;
}

CheckpointState state_of(const gw_checkpoint_state* state) {
  const gw_checkpoint_state s = read_struct(state, gw_checkpoint_state_init, "state");
  CheckpointState c;
  c.step = s.step;
  c.tokens = s.tokens;
  if (s.text_count > 0) required(s.texts, "state.texts");
  for (size_t i = 0; i < s.text_count; ++i) {
    const gw_checkpoint_text t = read_element(s.texts, i, gw_checkpoint_text_init, "state.texts");
    if (!c.texts.emplace(&required(t.name, "state.texts[i].name"), &required(t.text, "state.texts[i].text"))
             .second)
      fail(Code::invalid_argument, "state.texts has two texts \"", t.name, "\"");
  }
  if (s.user_size > 0)
    c.user.assign(static_cast<const char*>(&required(static_cast<const char*>(s.user), "state.user")),
                  s.user_size);
  return c;
}

const RestoreReport& restored(const gw_checkpoints* checkpoints) {
  const gw_checkpoints& c = required(checkpoints, "checkpoints");
  if (!c.restored)
    fail(Code::invalid_state, "no checkpoint was restored; gw_checkpoints_restore comes first");
  return *c.restored;
}

}  // namespace

void gw_checkpoints_options_init(gw_checkpoints_options* options, size_t size) {
  const CheckpointsOptions c;
  gw_checkpoints_options d{};
  d.every = c.every;
  d.max_file_bytes = static_cast<int64_t>(c.max_file_bytes);
  d.timeout_ms = c.timeout_ms;
  d.keep = c.keep;
  init_struct(options, size, d);
}

gw_status gw_checkpoints_create(gw_gangs* gangs, const char* folder, const gw_checkpoints_options* options,
                                gw_checkpoints** out_checkpoints) {
  return guarded([&] {
    if (out_checkpoints != nullptr) *out_checkpoints = nullptr;
    const GangsPtr used = gangs_or_alone(gangs);
    CheckpointsOptions c;
    CollectiveCall(*used, "checkpoints").read([&] {
      out(out_checkpoints, "out_checkpoints");
      c = options_of(options, folder);
    });
    *out_checkpoints = new gw_checkpoints(used, c);
  });
}

gw_checkpoints* gw_checkpoints_retain(gw_checkpoints* checkpoints) { return retain(checkpoints); }
void gw_checkpoints_release(gw_checkpoints* checkpoints) { release(checkpoints); }

void gw_checkpoint_part_init(gw_checkpoint_part* part, size_t size) { start_struct(part, size); }
void gw_checkpoint_text_init(gw_checkpoint_text* text, size_t size) { start_struct(text, size); }
void gw_checkpoint_state_init(gw_checkpoint_state* state, size_t size) { start_struct(state, size); }

gw_status gw_checkpoints_due(const gw_checkpoints* checkpoints, int64_t step, int32_t* out_due) {
  return guarded([&] {
    int32_t& due = out(out_due, "out_due");
    due = required(checkpoints, "checkpoints").checkpoints.due(step) ? 1 : 0;
  });
}

gw_status gw_checkpoints_save(gw_checkpoints* checkpoints, const gw_checkpoint_part* parts, size_t part_count,
                              const gw_checkpoint_state* state) {
  return guarded([&] {
    Checkpoints& c = required(checkpoints, "checkpoints").checkpoints;
    std::vector<CheckpointPart> p;
    CheckpointState s;
    CollectiveCall(*c.gangs(), "checkpoint").read([&] {
      p = parts_of(parts, part_count);
      s = state_of(state);
    });
    c.save(p, std::move(s));
  });
}

gw_status gw_checkpoints_wait(gw_checkpoints* checkpoints) {
  return guarded([&] { required(checkpoints, "checkpoints").checkpoints.wait(); });
}

void gw_restore_options_init(gw_restore_options* options, size_t size) {
  gw_restore_options d{};
  d.step = -1;
  init_struct(options, size, d);
}

gw_status gw_checkpoints_restore(gw_checkpoints* checkpoints, const gw_checkpoint_part* parts,
                                 size_t part_count, const gw_restore_options* options, int64_t* out_step,
                                 int64_t* out_tokens) {
  return guarded([&] {
    if (out_step != nullptr) *out_step = 0;
    if (out_tokens != nullptr) *out_tokens = 0;
    gw_checkpoints& c = required(checkpoints, "checkpoints");
    std::vector<CheckpointPart> p;
    RestoreOptions r;
    CollectiveCall(*c.checkpoints.gangs(), "restore").read([&] {
      out(out_step, "out_step");
      out(out_tokens, "out_tokens");
      const gw_restore_options o = read_struct(options, gw_restore_options_init, "options");
      if (o.step < -1) fail(Code::invalid_argument, "options.step is ", o.step, ", neither a step nor -1");
      r = {o.no_verify == 0, o.partial == 0, o.step};
      p = parts_of(parts, part_count);
    });
    std::optional<RestoreReport> report = c.checkpoints.restore(p, r);
    *out_step = report ? report->state.step : -1;
    *out_tokens = report ? report->state.tokens : 0;
    c.restored = std::move(report);
  });
}

gw_status gw_checkpoints_text(const gw_checkpoints* checkpoints, const char* name, char* text,
                              size_t capacity, size_t* out_len) {
  return guarded([&] {
    out(out_len, "out_len");
    const std::string wanted = &required(name, "name");
    const auto& texts = restored(checkpoints).state.texts;
    const auto at = texts.find(wanted);
    if (at == texts.end()) fail(Code::not_found, "the checkpoint has no text \"", wanted, "\"");
    copy_text(at->second, text, capacity, out_len);
  });
}

gw_status gw_checkpoints_user(const gw_checkpoints* checkpoints, void* data, size_t capacity,
                              size_t* out_size) {
  return guarded([&] {
    size_t& size = out(out_size, "out_size");
    const std::string& bytes = restored(checkpoints).state.user;
    size = bytes.size();
    if (data == nullptr) return;
    if (capacity < size) fail(Code::invalid_argument, "capacity is ", capacity, ", the bytes are ", size);
    std::memcpy(data, bytes.data(), size);
  });
}

gw_status gw_checkpoints_notes(const gw_checkpoints* checkpoints, char* text, size_t capacity,
                               size_t* out_len) {
  return guarded([&] {
    out(out_len, "out_len");
    const RestoreReport& report = restored(checkpoints);
    std::string lines;
    for (const std::string& line : report.differences) lines += line + "\n";
    for (const std::string& line : report.left_out) lines += line + "\n";
    for (const std::string& path : report.moved_aside) lines += "moved aside: " + path + "\n";
    copy_text(lines, text, capacity, out_len);
  });
}

gw_status gw_checkpoints_buffer_bytes(const gw_checkpoints* checkpoints, uint64_t* out_bytes) {
  return guarded([&] {
    uint64_t& bytes = out(out_bytes, "out_bytes");
    bytes = required(checkpoints, "checkpoints").checkpoints.buffer_bytes();
  });
}

gw_status gw_optimizer_load(gw_optimizer* optimizer, const char* path) {
  return guarded([&] {
    gw_optimizer& o = required(optimizer, "optimizer");
    std::string from;
    CollectiveCall(o.model->gangs(), "load_optimizer").read([&] { from = &required(path, "path"); });
    load_optimizer(*o.model, *o.optimizer, from);
  });
}
