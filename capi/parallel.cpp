#include <gangway/parallel.h>

#include <string_view>

#include "checkpoint/config_json.h"
#include "checkpoint/model_files.h"
#include "parallel_options.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

void check_wrappable(gw_module* model, const char* call) {
  const gw_module& m = required(model, "model");
  if (!m.model || !m.model->materialized()) return;
  if (std::string_view(call) == "gw_parallelize")
    fail(Code::invalid_state, call,
         ": the model has its values already, from an earlier gw_parallelize or gw_module_materialize; call "
         "it "
         "once for each model");
  fail(Code::invalid_state, call, " comes before gw_parallelize and gw_module_materialize");
}

// Applies the options of an earlier gw_recompute before the model is wrapped.
void recompute_first(gw_module& model) {
  if (model.recompute.kind == RecomputeKind::none) return;
  model.model->build().recompute(model.recompute);
  model.recompute = {};
}

}  // namespace

gw_status gw_parallelize(gw_module* model, gw_gangs* gangs, const gw_parallel_options* options) {
  return guarded([&] {
    ParallelOptions p;
    set_up(
        model, gangs,
        [&] {
          p = parallel_options_of(options);
          check_wrappable(model, "gw_parallelize");
          if (p.recompute.kind == RecomputeKind::none) p.recompute = model->recompute;
        },
        [&](Model& bound) { bound.build().parallelize(p); });
  });
}

gw_status gw_model_from_folder(gw_gangs* gangs, const char* folder, const gw_parallel_options* options,
                               gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    ParallelOptions p;
    std::string path;
    auto made = std::make_unique<gw_module>(ModulePtr());
    set_up(
        made.get(), gangs,
        [&] {
          p = parallel_options_of(options);
          path = &required(folder, "folder");
          made->module = make_decoder(decoder_options_of_folder(path));
          check_loads(*made->module, path);
        },
        [&](Model& bound) { bound.build().parallelize(p); });
    load_model(*made->model, path);
    result = made.release();
  });
}

gw_status gw_tensor_parallel(gw_module* model, gw_gangs* gangs, const gw_tensor_parallel_options* options) {
  return guarded([&] {
    TensorOptions t;
    set_up(
        model, gangs,
        [&] {
          t = tensor_options_of(options);
          check_wrappable(model, "gw_tensor_parallel");
        },
        [&](Model& bound) { bound.build().tensor_parallel(t); });
  });
}

gw_status gw_context_parallel(gw_module* model, gw_gangs* gangs, gw_context_method method) {
  return guarded([&] {
    ContextMethod m{};
    set_up(
        model, gangs,
        [&] {
          m = context_method_of(method, "method");
          check_wrappable(model, "gw_context_parallel");
        },
        [&](Model& bound) { bound.build().context_parallel(m); });
  });
}

gw_status gw_recompute(gw_module* model, gw_recompute_kind kind, int32_t every, double ratio) {
  return guarded([&] {
    gw_module& m = required(model, "model");
    const RecomputeOptions r = recompute_options_of(kind, every, ratio);
    if (m.model && (m.model->materialized() || !m.model->fsdp().groups().empty()))
      fail(Code::invalid_state,
           "gw_recompute comes before gw_fully_shard, gw_replicate and gw_module_materialize");
    m.recompute = r;
  });
}

gw_status gw_fully_shard(gw_module* model, const char* pattern, gw_gangs* gangs,
                         const gw_shard_options* options) {
  return guarded([&] {
    ShardOptions s;
    std::string p;
    set_up(
        model, gangs,
        [&] {
          s = shard_options_of(options);
          p = &required(pattern, "pattern");
          check_wrappable(model, "gw_fully_shard");
        },
        [&](Model& bound) {
          recompute_first(*model);
          bound.build().fully_shard(p, s);
        });
  });
}

gw_status gw_replicate(gw_module* model, gw_gangs* gangs, const gw_shard_options* options) {
  return guarded([&] {
    ShardOptions s;
    set_up(
        model, gangs,
        [&] {
          s = shard_options_of(options);
          s.strategy = Strategy::no_shard;
          check_wrappable(model, "gw_replicate");
        },
        [&](Model& bound) {
          recompute_first(*model);
          bound.build().replicate(s);
        });
  });
}
