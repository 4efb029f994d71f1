// Access to the parameters of a model by index or name.
#include <gangway/parameter.h>

#include "module_handle.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

std::vector<NamedParameter> parameters_of(const gw_module& model) {
  return model.model ? model.model->inspect().parameters() : named_parameters(*model.module);
}

gw_parameter* handle_of(gw_module& model, const NamedParameter& found) {
  auto handle = std::make_unique<gw_parameter>();
  handle->model = model.model;
  handle->name = found.name;
  handle->layout = describe(found.parameter->layout);
  handle->parameter = found.parameter;
  return handle.release();
}

Model& model_of(gw_parameter& parameter) {
  if (!parameter.model || !parameter.model->materialized())
    fail(Code::invalid_state, parameter.name,
         " was taken from a model without memory: call gw_parallelize or gw_module_materialize first");
  return *parameter.model;
}

// Returns a part of a parameter. Its contents are valid once the device's own stream has finished.
Tensor part_of(Model& model, Parameter& p, gw_part part, const std::string& name) {
  model.run().order(EntryStream::use(model.device().stream()));
  switch (part) {
    case GW_PART_VALUE: return p.shard;
    case GW_PART_GRADIENT: return model.inspect().gradient(p, model.device().stream());
    case GW_PART_FULL_VALUE:
      if (!p.value)
        fail(Code::invalid_state, name, " is sharded: its full value is there while it is unsharded");
      return p.value;
    case GW_PART_FULL_GRADIENT:
      if (!p.trainable) fail(Code::invalid_state, name, " is frozen and has no gradient");
      if (p.grad == nullptr)
        fail(Code::invalid_state, name,
             " has no full gradient: it is there from a backward to its reduction");
      return model.inspect().full_gradient(p, model.device().stream());
    default: fail(Code::invalid_argument, "part is ", part, ", not 0 to ", GW_PART_FULL_GRADIENT);
  }
}

// Returns a state of the optimizer for a parameter. Its contents are valid as those of part_of.
Tensor state_of(const gw_parameter& p, const gw_optimizer& handle, const std::string& wanted) {
  const Optimizer& o = *handle.optimizer;
  handle.model->run().order(EntryStream::use(handle.model->device().stream()));
  for (size_t i = 0; i < o.parameters().size(); ++i) {
    if (o.parameters()[i].parameter != p.parameter) continue;
    for (const Optimizer::Slot& slot : o.state(i))
      if (slot.name == wanted) return slot.tensor;
  }
  fail(Code::not_found, "the ", o.kind(), " optimizer has no state \"", wanted, "\" for ", p.name);
}

}  // namespace

gw_status gw_module_parameter_count(const gw_module* model, size_t* out_count) {
  return guarded([&] {
    size_t& count = out(out_count, "out_count");
    count = parameters_of(required(model, "model")).size();
  });
}

gw_status gw_module_parameter(gw_module* model, size_t index, gw_parameter** out_parameter) {
  return guarded([&] {
    gw_parameter*& result = out(out_parameter, "out_parameter");
    const auto all = parameters_of(required(model, "model"));
    if (index >= all.size())
      fail(Code::invalid_argument, "index is ", index, ", the model has ", all.size(), " parameters");
    result = handle_of(*model, all[index]);
  });
}

gw_status gw_module_find_parameter(gw_module* model, const char* name, gw_parameter** out_parameter) {
  return guarded([&] {
    gw_parameter*& result = out(out_parameter, "out_parameter");
    gw_module& m = required(model, "model");
    const std::string wanted = &required(name, "name");
    if (m.model && m.model->materialized()) {
      result = handle_of(m, m.model->inspect().parameter(wanted));
      return;
    }
    for (const NamedParameter& n : named_parameters_with_aliases(*m.module)) {
      if (n.name != wanted) continue;
      result = handle_of(m, n);
      return;
    }
    fail(Code::not_found, "the model has no parameter \"", wanted, "\"");
  });
}

gw_parameter* gw_parameter_retain(gw_parameter* parameter) { return retain(parameter); }
void gw_parameter_release(gw_parameter* parameter) { release(parameter); }

void gw_parameter_info_init(gw_parameter_info* info, size_t size) { start_struct(info, size); }

gw_status gw_parameter_describe(gw_parameter* parameter, gw_parameter_info* info) {
  return guarded([&] {
    gw_parameter& p = required(parameter, "parameter");
    check_out_struct(info, "info");
    gw_parameter_info i{};
    i.name = p.name.c_str();
    std::string layout = describe(p.parameter->layout);
    if (layout != p.layout)
      p.layout = std::move(layout);  // callers may still hold the address of an equal text
    i.layout = p.layout.c_str();
    i.ndim = p.parameter->shape.rank();
    for (int d = 0; d < i.ndim; ++d) i.dims[d] = p.parameter->shape[d];
    i.dtype = gw_dtype_of(p.parameter->dtype);
    i.is_buffer = p.parameter->kind == Parameter::Kind::buffer ? 1 : 0;
    i.trainable = p.parameter->trainable ? 1 : 0;
    if (p.parameter->shard) {
      i.first_row = p.parameter->box().first[0];
      i.last_row = p.parameter->box().last(0);
    }
    write_struct(info, i);
  });
}

gw_status gw_parameter_view(gw_parameter* parameter, gw_part part, gw_view* out_view) {
  return guarded([&] {
    gw_view& view = out(out_view, "out_view");
    gw_parameter& p = required(parameter, "parameter");
    const Tensor tensor = part_of(model_of(p), *p.parameter, part, p.name);  // throws for an unknown part
    gw_parameter::Dims& place = p.parts[static_cast<size_t>(part)];
    view = view_of(tensor, place.shape.data(), place.strides.data());
  });
}

gw_status gw_parameter_tensor(gw_parameter* parameter, gw_part part, gw_tensor** out_tensor) {
  return guarded([&] {
    gw_tensor*& result = out(out_tensor, "out_tensor");
    gw_parameter& p = required(parameter, "parameter");
    Model& m = model_of(p);
    result = new gw_tensor(part_of(m, *p.parameter, part, p.name), m.gangs().root());
  });
}

gw_status gw_parameter_state(gw_parameter* parameter, const gw_optimizer* optimizer, const char* name,
                             gw_view* out_view) {
  return guarded([&] {
    gw_view& view = out(out_view, "out_view");
    gw_parameter& p = required(parameter, "parameter");
    const Tensor state = state_of(p, required(optimizer, "optimizer"), &required(name, "name"));
    view = view_of(state, p.state.shape.data(), p.state.strides.data());
  });
}

gw_status gw_parameter_state_tensor(gw_parameter* parameter, const gw_optimizer* optimizer, const char* name,
                                    gw_tensor** out_tensor) {
  return guarded([&] {
    gw_tensor*& result = out(out_tensor, "out_tensor");
    const gw_optimizer& o = required(optimizer, "optimizer");
    const Tensor state = state_of(required(parameter, "parameter"), o, &required(name, "name"));
    result = new gw_tensor(state, o.model->gangs().root());
  });
}

gw_status gw_parameter_gather(gw_parameter* parameter, void* stream, gw_tensor** out_tensor) {
  return guarded([&] {
    if (out_tensor != nullptr) *out_tensor = nullptr;
    gw_parameter& p = required(parameter, "parameter");
    Model& m = model_of(p);
    Stream* ordered_on = nullptr;
    CollectiveCall(m.gangs(), "gather").read([&] {
      out(out_tensor, "out_tensor");
      ordered_on = &EntryStream::of(m.device(), stream);
    });
    *out_tensor = new gw_tensor(m.inspect().gather(*p.parameter, *ordered_on), m.gangs().root());
  });
}

gw_status gw_parameter_gather_gradient(gw_parameter* parameter, void* stream, gw_tensor** out_tensor) {
  return guarded([&] {
    if (out_tensor != nullptr) *out_tensor = nullptr;
    gw_parameter& p = required(parameter, "parameter");
    Model& m = model_of(p);
    Stream* ordered_on = nullptr;
    CollectiveCall(m.gangs(), "gather_gradient").read([&] {
      out(out_tensor, "out_tensor");
      ordered_on = &EntryStream::of(m.device(), stream);
    });
    *out_tensor = new gw_tensor(m.inspect().gather_gradient(*p.parameter, *ordered_on), m.gangs().root());
  });
}

gw_status gw_parameter_assign(gw_parameter* parameter, const gw_view* values, void* stream) {
  return guarded([&] {
    gw_parameter& p = required(parameter, "parameter");
    Model& m = model_of(p);
    Tensor value;
    Stream* ordered_on = nullptr;
    CollectiveCall(m.gangs(), "assign").read([&] {
      ordered_on = &EntryStream::of(m.device(), stream);
      value = input_of(required(values, "values"), *ordered_on, "values");
    });
    m.inspect().assign(*p.parameter, value, *ordered_on);
    m.origin().base_hash.reset();
  });
}
