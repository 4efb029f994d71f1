// Adapters of linear layers.
#include <gangway/lora.h>

#include "checkpoint/lora_config.h"
#include "checkpoint/lora_files.h"
#include "lora_options.h"
#include "module_handle.h"
#include "parallel/model/lora.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string> patterns_of(const char* given, const char* name) {
  std::vector<std::string> patterns;
  if (given == nullptr) return patterns;
  std::string rest = given;
  while (true) {
    const size_t comma = rest.find(',');
    patterns.push_back(trimmed(rest.substr(0, comma)));
    if (patterns.back().empty())
      fail(Code::invalid_argument, name, ".patterns is \"", given, "\", in which a pattern is empty");
    if (comma == std::string::npos) return patterns;
    rest = rest.substr(comma + 1);
  }
}

ModulePtr whole_description(gw_module* model) {
  gw_module& m = required(model, "model");
  if (m.model)
    fail(Code::invalid_state,
         "the model is wrapped already; adapters come before gw_parallelize and the calls that wrap a model");
  if (!m.inside.expired())
    fail(Code::invalid_state, "the module is part of another one; the whole model gets adapters");
  return m.module;
}

}  // namespace

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
    apply_lora(whole_description(model), l);
  });
}

gw_status gw_lora_apply_folder(gw_module* model, const char* folder, uint64_t seed) {
  return guarded([&] {
    const char& path = required(folder, "folder");
    const ModulePtr whole = whole_description(model);
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
