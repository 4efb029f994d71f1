// Makers of one handle of each type, whose free functions are counted, for tests of the lifetimes of handles.
#pragma once

#include <gangway/gangway.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>

#include "dlpack.h"
#include "small.h"

namespace lifetime {

inline std::atomic<int64_t> live{0};  // allocations of this process, the library's included
inline int freed = 0;                 // calls of free functions

inline void ok(gw_status status) {
  if (status == GW_OK) return;
  throw std::runtime_error(last_error().message);
}

inline void count_free(void* user) { freed += user == &freed; }

// --- makers; the caller owns each result

inline gw_store* make_store() {
  gw_store_callbacks c = with(gw_store_callbacks_init);
  c.put = [](void*, const char*, const void*, size_t) -> gw_status { return GW_OK; };
  c.get = [](void*, const char*, void*, size_t, int64_t* size) -> gw_status { return *size = -1, GW_OK; };
  c.remove = [](void*, const char*) -> gw_status { return GW_OK; };
  c.user = &freed;
  c.free_user = count_free;
  gw_store* store = nullptr;
  ok(gw_store_create_callbacks(&c, &store));
  return store;
}
// `used`: after its first batch, so that the thread that reads ahead runs.
inline gw_dataset* make_dataset(const char* path, bool used) {
  gw_data_source source = with(gw_data_source_init);
  gw_dataset_options o = with(gw_dataset_options_init);
  gw_data_batch batch = with(gw_data_batch_init);
  source.path = path;
  o.sources = &source;
  o.source_count = 1;
  o.sequence = 4;
  gw_dataset* dataset = nullptr;
  ok(gw_dataset_create(&o, &dataset));
  if (used) ok(gw_dataset_next(dataset, nullptr, 3, &batch));
  return dataset;
}
inline gw_gang* make_gang() {
  gw_gang* gang = nullptr;
  ok(gw_gang_create(nullptr, &gang));
  return gang;
}
inline gw_gangs* make_gangs(gw_gang* gang) {
  gw_gangs* gangs = nullptr;
  ok(gw_gangs_create(gang, nullptr, &gangs));
  return gangs;
}

// One parameter of one number, which a fill function sets.
struct OneParameter {
  gw_init_options init = with(gw_init_options_init);
  gw_parameter_options options = with(gw_parameter_options_init);
  OneParameter() {
    init.kind = GW_INIT_FILL;
    init.fill = [](void*, int64_t, int64_t, void* out, size_t, gw_dtype) -> gw_status {
      return *static_cast<float*>(out) = 2, GW_OK;
    };
    init.user = &freed;
    init.free_user = count_free;
    options.name = "w";
    options.ndim = 1;
    options.dims[0] = 1;
    options.initializer = &init;
  }
};
// Its free functions free the module's user, the initializer's user, and the state of each forward.
inline gw_module* make_custom() {
  OneParameter p;
  gw_custom_options c = with(gw_custom_options_init);
  c.forward = [](void*, gw_call* call) -> gw_status {
    for (int i = 0; i < 2; ++i) *static_cast<double*>(call->outputs[i].data) = 1;
    *call->state = &freed;
    return GW_OK;
  };
  c.backward_input = [](void*, gw_call*) -> gw_status { return GW_OK; };
  c.user = &freed;
  c.free_user = c.free_state = count_free;
  c.output_count = 2;
  c.parameters = &p.options;
  c.parameter_count = 1;
  gw_module* model = nullptr;
  ok(gw_custom_create(&c, &model));
  return model;
}
inline gw_module* make_model(gw_gangs* gangs) {
  gw_module* model = make_custom();
  ok(gw_parallelize(model, gangs, nullptr));
  return model;
}
inline gw_optimizer* make_optimizer(gw_module* model) {
  gw_optimizer* optimizer = nullptr;
  ok(gw_adamw_create(model, nullptr, &optimizer));
  return optimizer;
}
inline gw_view one_number() {
  static float x = 1;
  static const int64_t shape[1] = {1};
  gw_view view;
  ok(gw_view_set(&view, &x, shape, 1, GW_F32));
  return view;
}
// A frame whose forward waits for its backward.
inline gw_frame* make_frame(gw_module* model) {
  gw_frame* frame = nullptr;
  ok(gw_frame_create(model, nullptr, &frame));
  const gw_view x = one_number();
  gw_tensor* out[2] = {};
  size_t count = 0;
  ok(gw_module_forward(model, &x, 1, frame, nullptr, out, 2, &count));
  for (gw_tensor* tensor : out) gw_tensor_release(tensor);
  return frame;
}
inline gw_parameter* make_parameter(gw_module* model) {
  gw_parameter* parameter = nullptr;
  ok(gw_module_parameter(model, 0, &parameter));
  return parameter;
}
inline gw_tensor* make_value(gw_parameter* parameter) {
  gw_tensor* tensor = nullptr;
  ok(gw_parameter_tensor(parameter, GW_PART_VALUE, &tensor));
  return tensor;
}
inline gw_shard_group* make_group(gw_gangs* gangs) {
  OneParameter p;
  gw_shard_group* group = nullptr;
  ok(gw_shard_group_create(gangs, "group", &p.options, 1, nullptr, 1, &group));
  return group;
}
inline float sent = 1, got = 0;
inline gw_work* make_work(gw_gang* gang) {
  gw_work* work = nullptr;
  ok(gw_gang_all_reduce_async(gang, &sent, &got, 1, GW_F32, GW_SUM, nullptr, &work));
  ok(gw_work_attach(work, &freed, count_free));
  return work;
}
inline gw_bytes* make_bytes(gw_gang* gang) {
  gw_bytes* bytes = nullptr;
  ok(gw_gang_broadcast_bytes(gang, "abc", 3, 0, &bytes));
  return bytes;
}
inline gw_checkpoints* make_checkpoints(gw_gangs* gangs, const char* folder) {
  gw_checkpoints* checkpoints = nullptr;
  ok(gw_checkpoints_create(gangs, folder, nullptr, &checkpoints));
  return checkpoints;
}
// A tensor that the caller passes by DLPack, with a deleter that counts.
inline gw_tensor* take_tensor() {
  static DLManagedTensorVersioned managed;
  managed = {};
  managed.major = 1;
  managed.deleter = [](DLManagedTensorVersioned*) { ++freed; };
  managed.tensor = one_number();
  gw_tensor* tensor = nullptr;
  ok(gw_tensor_from_dlpack(&managed, &tensor));
  return tensor;
}
inline DLManagedTensorVersioned* make_export(gw_tensor* tensor) {
  DLManagedTensorVersioned* out = nullptr;
  ok(gw_tensor_to_dlpack(tensor, &out));
  return out;
}

}  // namespace lifetime
