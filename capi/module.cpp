#include <gangway/module.h>

#include <algorithm>

#include "checkpoint/config_json.h"
#include "checkpoint/safetensors.h"
#include "module_handle.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

double deviation_of(double range) {
  if (!(finite(range, "options.initializer_range") >= 0))
    fail(Code::invalid_argument, "options.initializer_range is ", range, ", below 0");
  return range;
}

RopeOptions rope_of(double theta) {
  RopeOptions r;
  r.theta = finite(theta, "options.rope_theta");
  return r;
}

gw_llama_options llama_options_of(const DecoderOptions& c) {
  gw_llama_options o{};
  o.vocab = c.vocab;
  o.dim = c.dim;
  o.layers = c.layers;
  o.heads = c.heads;
  o.kv_heads = c.kv_heads;
  o.head_dim = c.head_dim;
  o.ffn = c.ffn;
  o.max_positions = c.max_positions;
  o.eps = c.eps;
  o.rope_theta = c.rope.theta;
  o.rope_factor = c.rope.factor;
  o.rope_low_frequency_factor = c.rope.low_frequency_factor;
  o.rope_high_frequency_factor = c.rope.high_frequency_factor;
  o.rope_original_positions = c.rope.original_positions;
  o.initializer_range = c.deviation;
  o.qkv_bias = c.qkv_bias;
  o.out_bias = c.out_bias;
  o.mlp_bias = c.mlp_bias;
  o.tied = c.tied;
  return o;
}

AttentionOptions attention_of(const gw_attention_options* options, const char* name) {
  const gw_attention_options o = read_struct(&required(options, name), gw_attention_options_init, name);
  AttentionOptions a;
  a.dim = o.dim;
  a.heads = o.heads;
  a.kv_heads = o.kv_heads != 0 ? o.kv_heads : o.heads;
  a.head_dim = o.head_dim;
  a.qkv_bias = o.qkv_bias != 0;
  a.out_bias = o.out_bias != 0;
  a.causal = o.causal != 0;
  a.rope = rope_of(o.rope_theta);
  a.deviation = deviation_of(o.initializer_range);
  return a;
}

}  // namespace

ModulePtr gw_module::part(const std::string& name) {
  if (!module || model)
    fail(Code::invalid_state, name, " is bound to gangs already; build the whole model first");
  if (!inside.expired()) fail(Code::invalid_state, name, " is part of another module already");
  return module;
}

void gw_module::takes(std::span<gw_module* const> parts) {
  for (gw_module* part : parts) part->inside = module;
}

Model& gw_module::bind(gw_gangs* given) {
  if (model) {
    if (given != nullptr && (!gangs || given->gangs != gangs->gangs))
      fail(Code::invalid_state, "the model is bound to other gangs already");
    return *model;
  }
  if (!inside.expired())
    fail(Code::invalid_state, "the module is part of another one; the whole model is bound to gangs");
  const GangsPtr chosen = gangs_or_current(given);
  decltype(gangs) handle(chosen != nullptr ? new gw_gangs(chosen) : nullptr);
  model = std::make_shared<Model>(module, chosen);
  gangs = std::move(handle);
  model->run().set_caller(gangs.get());
  return *model;
}

void gw_module::unbind() {
  model.reset();
  gangs.reset();
}

Gangs* gw_module::gangs_of(const gw_module* model, const gw_gangs* given) {
  if (model != nullptr && model->model) return &model->model->gangs();
  return gangs_or_current(given).get();
}

Model& gw_module::ready() const {
  if (!model || !model->materialized())
    fail(Code::invalid_state,
         "the model has no memory yet: call gw_parallelize or gw_module_materialize first");
  return *model;
}

namespace gangway::capi {

std::vector<Tensor> tensors_of(const gw_view* views, size_t count, Stream& stream, const char* name) {
  if (count > 0) required(views, name);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < count; ++i) tensors.push_back(input_of(views[i], stream, text(name, "[", i, "]")));
  return tensors;
}

void check_once(const std::vector<ModulePtr>& modules, const std::string& last) {
  const auto first = std::find(modules.begin(), modules.end(), modules.back());
  if (first + 1 != modules.end())
    fail(Code::invalid_argument, last, " is the module at ", first - modules.begin(),
         " again; each stands once");
}

}  // namespace gangway::capi

// --- layers

void gw_llama_options_init(gw_llama_options* options, size_t size) {
  init_struct(options, size, llama_options_of(DecoderOptions{}));
}

gw_status gw_llama_create(const gw_llama_options* options, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    const gw_llama_options o = read_struct(options, gw_llama_options_init, "options");
    DecoderOptions c;
    c.vocab = o.vocab;
    c.dim = o.dim;
    c.layers = o.layers;
    c.heads = o.heads;
    c.kv_heads = o.kv_heads;
    c.head_dim = o.head_dim;
    c.ffn = o.ffn;
    c.max_positions = o.max_positions;
    c.eps = finite(o.eps, "options.eps");
    c.rope = {finite(o.rope_theta, "options.rope_theta"), finite(o.rope_factor, "options.rope_factor"),
              finite(o.rope_low_frequency_factor, "options.rope_low_frequency_factor"),
              finite(o.rope_high_frequency_factor, "options.rope_high_frequency_factor"),
              o.rope_original_positions};
    c.deviation = deviation_of(o.initializer_range);
    c.qkv_bias = o.qkv_bias != 0;
    c.out_bias = o.out_bias != 0;
    c.mlp_bias = o.mlp_bias != 0;
    c.tied = o.tied != 0;
    result = new gw_module(make_decoder(c));
  });
}

gw_status gw_llama_options_from_folder(const char* folder, gw_llama_options* options) {
  return guarded([&] {
    check_out_struct(options, "options");
    const DecoderOptions c = decoder_options_of_folder(&required(folder, "folder"));
    write_struct(options, llama_options_of(c));
  });
}

gw_status gw_linear_create(int64_t input_dim, int64_t output_dim, int32_t bias, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_linear(input_dim, output_dim, bias != 0));
  });
}

gw_status gw_embedding_create(int64_t rows, int64_t dim, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_embedding(rows, dim));
  });
}

gw_status gw_rmsnorm_create(int64_t dim, double eps, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_rmsnorm(dim, finite(eps, "eps")));
  });
}

void gw_attention_options_init(gw_attention_options* options, size_t size) {
  const AttentionOptions a;
  gw_attention_options d{};
  d.rope_theta = a.rope.theta;
  d.initializer_range = a.deviation;
  d.causal = 1;
  init_struct(options, size, d);
}

gw_status gw_attention_create(const gw_attention_options* options, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_attention(attention_of(options, "options")));
  });
}

gw_status gw_mlp_create(int64_t dim, int64_t ffn, int32_t bias, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    result = new gw_module(make_mlp(dim, ffn, bias != 0));
  });
}

gw_status gw_block_create(const gw_attention_options* attention, int64_t ffn, double eps,
                          gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    BlockOptions block{attention_of(attention, "attention"), ffn};
    block.eps = finite(eps, "eps");
    result = new gw_module(make_block(block));
  });
}

gw_status gw_sequential_create(gw_module* const* models, size_t model_count, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    if (model_count == 0) fail(Code::invalid_argument, "a sequential of 0 modules");
    required(models, "models");
    std::vector<ModulePtr> all;
    for (size_t i = 0; i < model_count; ++i) {
      const std::string name = text("models[", i, "]");
      all.push_back(required(models[i], name.c_str()).part(name));
      check_once(all, name);
    }
    result = new gw_module(make_sequential(std::move(all)));
    result->takes({models, model_count});
  });
}

// --- handles, materialize, freeze

gw_module* gw_module_retain(gw_module* model) { return retain(model); }
void gw_module_release(gw_module* model) { release(model); }

gw_status gw_module_materialize(gw_module* model, gw_gangs* gangs, uint64_t seed, gw_dtype master_dtype) {
  return guarded([&] {
    DType master = DType::f32;
    set_up(
        model, gangs,
        [&] {
          if (master_dtype != GW_DTYPE_NONE) master = dtype_of(master_dtype);
        },
        [&](Model& bound) {
          if (model->recompute.kind != RecomputeKind::none) bound.build().recompute(model->recompute);
          model->recompute = {};
          bound.build().materialize(seed, master);
        });
  });
}

gw_status gw_module_freeze(gw_module* model, const char* pattern) {
  return guarded([&] {
    gw_module& m = required(model, "model");
    const std::string p = &required(pattern, "pattern");
    if (m.model && m.model->materialized())
      fail(Code::invalid_state,
           "gw_module_freeze comes before gw_parallelize and gw_module_materialize: the model's gradients "
           "have "
           "memory already");
    size_t matches = 0;
    for (const NamedParameter& n : named_parameters(*m.module)) {
      if (!path_matches(p, n.name)) continue;
      n.parameter->trainable = false;
      ++matches;
    }
    if (matches == 0) fail(Code::not_found, "no parameter matches \"", p, "\"");
  });
}

// --- files

void gw_save_options_init(gw_save_options* options, size_t size) { start_struct(options, size); }

gw_status gw_module_save(gw_module* model, const char* folder, const gw_save_options* options) {
  return guarded([&] {
    SaveOptions s;
    std::string path;
    Model& m = required(model, "model").ready();
    CollectiveCall(m.gangs(), "save").read([&] {
      s.dtype = optional_dtype(read_struct(options, gw_save_options_init, "options").dtype);
      path = &required(folder, "folder");
    });
    save_model(m, path, s);
  });
}

void gw_load_options_init(gw_load_options* options, size_t size) { start_struct(options, size); }

gw_status gw_module_load(gw_module* model, const char* path, const gw_load_options* options) {
  return guarded([&] {
    LoadOptions l;
    std::string from;
    Model& m = required(model, "model").ready();
    CollectiveCall(m.gangs(), "load").read([&] {
      const gw_load_options o = read_struct(options, gw_load_options_init, "options");
      l = {o.ignore_extra != 0, o.ignore_config != 0};
      from = &required(path, "path");
    });
    load_model(m, from, l);
  });
}

gw_status gw_module_check_replicas(gw_module* model, void* stream) {
  return guarded([&] {
    Stream* ordered_on = nullptr;
    Model& m = required(model, "model").ready();
    CollectiveCall(m.gangs(), "check_replicas").read([&] {
      ordered_on = &EntryStream::of(m.device(), stream);
    });
    m.inspect().check_replicas(*ordered_on);
  });
}

void gw_memory_use_init(gw_memory_use* memory, size_t size) { start_struct(memory, size); }

gw_status gw_module_memory(gw_module* model, gw_memory_use* memory) {
  return guarded([&] {
    check_out_struct(memory, "memory");
    const MemoryUse m = required(model, "model").ready().inspect().memory();
    write_struct(memory, gw_memory_use{0, nullptr, m.master, m.region_rows, m.gradient_shards, m.gathered,
                                       m.full_gradients, m.activations, m.gradients, m.temporaries, m.copies,
                                       m.optimizer, m.host});
  });
}
