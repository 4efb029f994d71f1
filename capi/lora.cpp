// Adapters of linear layers.
#include <gangway/lora.h>

#include "checkpoint/lora_config.h"
#include "checkpoint/lora_files.h"
#include "lora_options.h"
#include "parallel/model/lora.h"
#include "patterns.h"

using namespace gangway;
using namespace gangway::capi;

LoraOptions capi::lora_options_of(const gw_lora_options* options, const char* name) {
  const gw_lora_options o = read_struct(options, gw_lora_options_init, name);
  LoraOptions l;
  l.patterns = patterns_of(o.patterns, name);
  l.rank = o.rank;
  l.alpha = o.alpha;
  l.dropout = o.dropout;
  l.seed = o.seed;
  l.rank_stabilized = o.rank_stabilized != 0;
  return l;
}

void gw_lora_options_init(gw_lora_options* options, size_t size) {
  const LoraOptions defaults;
  gw_lora_options o{};
  o.rank = defaults.rank;
  o.alpha = defaults.alpha;
  init_struct(options, size, o);
}

gw_status gw_lora_apply(gw_module* model, const gw_lora_options* options) {
  return guarded([&] {
    const LoraOptions l = lora_options_of(options, "options");
    apply_lora(whole_description(model, "adapters"), l);
  });
}

gw_status gw_lora_apply_folder(gw_module* model, const char* folder, uint64_t seed) {
  return guarded([&] {
    const char& path = required(folder, "folder");
    const ModulePtr whole = whole_description(model, "adapters");
    LoraOptions l = lora_options_of_folder(&path);
    l.seed = seed;
    apply_lora(whole, l);
  });
}

gw_status gw_lora_enable(gw_module* model, int32_t on) {
  return guarded([&] {
    gw_module& m = required(model, "model");
    if (m.model && m.model->materialized()) return enable_lora(*m.model, on != 0);
    const auto settings = lora_settings(named_parameters(*m.module));
    if (settings == nullptr)
      fail(Code::invalid_state, "the model has no adapters; gw_lora_apply comes first");
    settings->enabled = on != 0;
  });
}

gw_status gw_lora_save(gw_module* model, const char* folder, const char* base,
                       const gw_save_options* options) {
  return guarded([&] {
    SaveOptions s;
    std::string path;
    Model& m = required(model, "model").ready();
    CollectiveCall(m.gangs(), "lora_save").read([&] {
      const gw_save_options o = read_struct(options, gw_save_options_init, "options");
      s.dtype = optional_dtype(o.dtype);
      if (o.max_file_bytes != 0)
        fail(Code::invalid_argument, "options.max_file_bytes is ", o.max_file_bytes,
             ", but PEFT reads adapters from one file; leave it 0");
      path = &required(folder, "folder");
    });
    save_lora(m, path, s, text_or(base, ""));
  });
}

gw_status gw_lora_load(gw_module* model, const char* folder) {
  return guarded([&] {
    std::string from;
    Model& m = required(model, "model").ready();
    CollectiveCall(m.gangs(), "lora_load").read([&] { from = &required(folder, "folder"); });
    load_lora(m, from);
  });
}

gw_status gw_lora_merge(gw_module* model, void* stream) {
  return guarded([&] {
    Stream* ordered_on = nullptr;
    Model& m = required(model, "model").ready();
    CollectiveCall(m.gangs(), "lora_merge").read([&] { ordered_on = &EntryStream::of(m.device(), stream); });
    merge_lora(m, *ordered_on);
  });
}
