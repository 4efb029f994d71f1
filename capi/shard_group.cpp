#include "parallel/shard_group.h"

#include "gang_handle.h"
#include "parallel_options.h"
#include "parameter_options.h"
#include "tensor_handle.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(Part::full_gradient) == GW_PART_FULL_GRADIENT);

struct gw_shard_group : Handle {
  const Use& thread_use() const { return group->gangs().thread_use(); }
  std::shared_ptr<ShardGroup> group;
  GangsPtr gangs;
  // Shape and strides of borrowed views. Each part of each parameter has its own, so that their views are
  // valid at once.
  struct Dims {
    std::array<int64_t, kMaxDims> shape{}, strides{};
  };
  std::vector<std::array<Dims, 4>> dims;
};

namespace {

gw_shard_group& group_of(gw_shard_group* group) { return required(group, "group"); }

void check_index(const gw_shard_group& group, size_t index) {
  if (index >= group.dims.size())
    fail(Code::invalid_argument, "index is ", index, ", the group has ", group.dims.size(), " parameters");
}

Tensor part_of(gw_shard_group& group, size_t index, gw_part part) {
  check_index(group, index);
  if (part < GW_PART_VALUE || part > GW_PART_FULL_GRADIENT)
    fail(Code::invalid_argument, "part is ", part, ", not 0 to ", GW_PART_FULL_GRADIENT);
  EntryStream::use(group.group->device().stream());  // view() zeroes an unwritten gradient on this stream
  return group.group->view(index, static_cast<Part>(part));
}

GroupParameter parameter_of(const gw_parameter_options* all, size_t i, Initializers& initializers) {
  const gw_parameter_options o = read_element(all, i, gw_parameter_options_init, "parameters");
  GroupParameter p;
  p.name = &required(o.name, "parameters[i].name");
  p.shape = shape_of(o);
  p.dtype = o.dtype == GW_DTYPE_NONE ? DType::f32 : dtype_of(o.dtype);
  p.init = initializers.read(o.initializer);
  p.is_buffer = o.is_buffer != 0;
  p.trainable = o.frozen == 0 && !p.is_buffer;
  if (o.alias_count > 0) required(o.aliases, "parameters[i].aliases");
  for (size_t k = 0; k < o.alias_count; ++k)
    p.aliases.push_back(&required(o.aliases[k], "parameters[i].aliases[k]"));
  return p;
}

// Returns the caller's memory for full values as tensors.
std::vector<Tensor> targets_of(const gw_shard_group& group, const gw_view* into, Device& device) {
  std::vector<Tensor> targets;
  for (size_t i = 0; i < group.dims.size(); ++i) {
    const NamedParameter& p = group.group->parameters()[i];
    targets.push_back(tensor_of(into[i], device, text("into[", i, "]"), true));
    if (!targets[i].contiguous())
      fail(Code::invalid_argument, "into[", i, "] of shape ", targets[i].shape().text(),
           " is not contiguous");
    if (!(targets[i].shape() == p.parameter->shape))
      fail(Code::invalid_argument, "into[", i, "] has shape ", targets[i].shape().text(), ", ", p.name,
           " has ", p.parameter->shape.text());
  }
  return targets;
}

Stream& stream_of(gw_shard_group& group, void* stream) {
  return EntryStream::of(group.group->device(), stream);
}

}  // namespace

gw_status gw_shard_group_create(gw_gangs* gangs, const char* name, const gw_parameter_options* parameters,
                                size_t parameter_count, const gw_shard_options* options, uint64_t seed,
                                gw_shard_group** out_group) {
  Initializers initializers(parameters, parameter_count);
  return guarded([&] {
    std::string label;
    ShardOptions s;
    std::vector<GroupParameter> all;
    auto handle = std::make_unique<gw_shard_group>();
    const auto read = [&] {
      out(out_group, "out_group");
      label = &required(name, "name");
      s = shard_options_of(options);
      if (parameter_count == 0) fail(Code::invalid_argument, "shard group ", label, " has 0 parameters");
      required(parameters, "parameters");
      for (size_t i = 0; i < parameter_count; ++i) all.push_back(parameter_of(parameters, i, initializers));
      handle->dims.resize(parameter_count);
    };
    const GangsPtr chosen = gangs_or_current(gangs);
    if (chosen != nullptr)
      CollectiveCall(*chosen, "make_shard_group").read(read);
    else
      read();
    handle->gangs = chosen;
    handle->group = make_shard_group(handle->gangs, label, all, s, seed);
    *out_group = handle.release();
    initializers.take();
  });
}

gw_shard_group* gw_shard_group_retain(gw_shard_group* group) { return retain(group); }
void gw_shard_group_release(gw_shard_group* group) { release(group); }

gw_status gw_shard_group_unshard(gw_shard_group* group, const gw_view* into, void* stream) {
  return guarded([&] {
    gw_shard_group& g = group_of(group);
    Stream& s = stream_of(g, stream);
    g.group->unshard(into != nullptr ? targets_of(g, into, s.device()) : std::vector<Tensor>(), s);
  });
}

gw_status gw_shard_group_unshard_async(gw_shard_group* group, void* stream, gw_work** out_work) {
  return guarded([&] {
    gw_work*& result = out(out_work, "out_work");
    gw_shard_group& g = group_of(group);
    Stream& s = stream_of(g, stream);
    auto work = std::make_unique<gw_work>(nullptr, g.group->gang());
    work->keep = g.group;
    work->work = g.group->unshard_async(s);
    result = work.release();
  });
}

gw_status gw_shard_group_reshard(gw_shard_group* group, void* stream) {
  return guarded([&] {
    gw_shard_group& g = group_of(group);
    g.group->reshard(stream_of(g, stream));
  });
}

gw_status gw_shard_group_view(gw_shard_group* group, size_t index, gw_part part, gw_view* out_view) {
  return guarded([&] {
    gw_view& view = out(out_view, "out_view");
    gw_shard_group& g = group_of(group);
    const Tensor tensor = part_of(g, index, part);
    gw_shard_group::Dims& place = g.dims[index][static_cast<size_t>(part)];
    view = view_of(tensor, place.shape.data(), place.strides.data());
  });
}

gw_status gw_shard_group_tensor(gw_shard_group* group, size_t index, gw_part part, gw_tensor** out_tensor) {
  return guarded([&] {
    gw_tensor*& result = out(out_tensor, "out_tensor");
    gw_shard_group& g = group_of(group);
    result = new gw_tensor(part_of(g, index, part), g.group->gang());
  });
}

gw_status gw_shard_group_add_gradient(gw_shard_group* group, size_t index, const gw_view* gradient,
                                      void* stream) {
  return guarded([&] {
    gw_shard_group& g = group_of(group);
    Stream& s = stream_of(g, stream);
    check_index(g, index);
    const Tensor t = tensors_of(&required(gradient, "gradient"), 1, s, "gradient").front();
    const NamedParameter& p = g.group->parameters()[index];
    if (!(t.shape() == p.parameter->shape))
      fail(Code::invalid_argument, "gradient has shape ", t.shape().text(), ", ", p.name, " has ",
           p.parameter->shape.text());
    if (!is_floating(t.dtype()))
      fail(Code::invalid_argument, "gradient is ", name(t.dtype()), ", not floating");
    g.group->add_gradient(index, t, s);
  });
}

gw_status gw_shard_group_reduce(gw_shard_group* group, void* stream) {
  return guarded([&] {
    gw_shard_group& g = group_of(group);
    g.group->reduce(stream_of(g, stream));
  });
}

gw_status gw_shard_group_begin_update(gw_shard_group* group, void* stream) {
  return guarded([&] {
    gw_shard_group& g = group_of(group);
    Stream* ordered_on = nullptr;
    CollectiveCall(g.group->gangs(), "begin_update").read([&] { ordered_on = &stream_of(g, stream); });
    g.group->begin_update(*ordered_on);
  });
}

gw_status gw_shard_group_end_update(gw_shard_group* group, void* stream) {
  return guarded([&] {
    gw_shard_group& g = group_of(group);
    g.group->end_update(stream_of(g, stream));
  });
}

gw_status gw_module_from_groups(gw_shard_group* const* groups, size_t group_count, gw_module** out_model) {
  return guarded([&] {
    gw_module*& result = out(out_model, "out_model");
    if (group_count == 0) fail(Code::invalid_argument, "a model of 0 shard groups");
    required(groups, "groups");
    std::vector<std::shared_ptr<ShardGroup>> all;
    for (size_t i = 0; i < group_count; ++i) all.push_back(required(groups[i], "groups[i]").group);
    const std::shared_ptr<Model> model = model_from_groups(all);
    model->share_thread_use(groups[0]->thread_use());  // groups of the same gangs share theirs
    result = new gw_module(model);
  });
}
