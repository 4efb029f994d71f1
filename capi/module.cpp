// A module's life: description, binding to gangs, memory.
#include <gangway/module.h>

#include <algorithm>

#include "module_handle.h"

using namespace gangway;
using namespace gangway::capi;

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
  const auto made = std::make_shared<Model>(module, chosen);
  made->share_thread_use(use_);
  model = made;
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
