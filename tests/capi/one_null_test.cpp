// Every entry with null for one required pointer at a time, and valid values for the others, returns a code
// and a text that names the argument, and no handle.
#include <gangway/gangway.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>

#include "dlpack.h"
#include "optimizer_rows.h"
#include "small.h"

namespace {

std::set<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

// Null is allowed here: default options, no stream, a text or a result that is not wanted, or a null user
// object.
const std::set<std::string> kOptional = words(R"(
    options stream user release object free_object text reason gw_log_read.out_len
    gw_log_read.out_next gw_config_text.out_len gw_gang_flight_record.out_len
    gw_interrupt_set.check gw_allocator_set.allocator gw_view_set.data gw_gang_run.out_work
    gw_gang_run_batch.out_work gw_gangs_create.root gw_gangs_create_fake.device
    gw_gangs_current.device gw_gangs_set_default.gangs gw_module_materialize.gangs
    gw_parallelize.gangs gw_tensor_parallel.gangs gw_context_parallel.gangs gw_fully_shard.gangs gw_replicate.gangs gw_shard_group_create.gangs gw_model_from_folder.gangs
    gw_shard_group_unshard.into gw_module_forward.frame gw_train_step.result
    gw_optimizer_step.result gw_movement_create.target gw_dataset_next.gangs
    gw_checkpoints_create.gangs gw_checkpoints_save.state gw_checkpoints_user.data
    gw_metrics_log.step gw_metrics_position.text gw_plan_memory.out_rank
    gw_verify.gangs gw_verify.result gw_verify_groups.gangs gw_verify_groups.result gw_lora_save.base)");
const std::set<std::string> kRequired = {"gw_attention_create.options",
                                         "gw_custom_create.options",
                                         "gw_custom_optimizer_create.options",
                                         "gw_dataset_create.options",
                                         "gw_decoder_options_from_family.options",
                                         "gw_decoder_options_from_folder.options",
                                         "gw_plan_memory.options"};
// These are read only while a module runs; custom_test.c tests them.
const std::set<std::string> kInsideOfCallbacks = {"gw_call_forward.out_views", "gw_call_backward.out_views"};

bool tried(const std::string& function, const std::string& argument) {
  const std::string whole = function + "." + argument;
  if (kRequired.count(whole) != 0) return true;
  return kOptional.count(argument) == 0 && kOptional.count(whole) == 0 &&
         kInsideOfCallbacks.count(whole) == 0;
}

gw_status put(void*, const char*, const void*, size_t) { return GW_OK; }
gw_status get(void*, const char*, void*, size_t, int64_t* out_size) { return *out_size = -1, GW_OK; }
gw_status drop(void*, const char*) { return GW_OK; }
gw_status no_step(void*, gw_gangs*, double*, gw_module**) { return GW_E_CALLER; }
gw_status compute(void*, gw_call*) { return GW_OK; }
gw_status step_one(void*, const gw_optimizer_call*) { return GW_OK; }
gw_status rate(void*, int64_t, double* out_factor) { return *out_factor = 1, GW_OK; }

// One valid object of every kind, so that a call can refuse nothing but the null.
class World {
 public:
  World() {
    gw_error_set("no callback runs");
    error = gw_error_take();
    must(gw_gang_create(nullptr, &gang));
    must(gw_gangs_create(gang, nullptr, &gangs));
    const gw_decoder_options llama = small_llama();
    must(gw_decoder_create(&llama, &model));
    must(gw_module_materialize(model, gangs, 1, GW_F32));
    must(gw_linear_create(2, 2, 0, &described));
    must(gw_sgd_create(model, nullptr, &optimizer));
    must(gw_module_parameter(model, 0, &parameter));
    fill_batch(&small, 1, 0);
    must(gw_tensor_copy(&small.input, &tensor));
    must(gw_gang_broadcast_bytes(gang, "x", 1, 0, &bytes));
    must(gw_gang_barrier_async(gang, nullptr, &work));
    callbacks.put = put;
    callbacks.get = get;
    callbacks.remove = drop;
    must(gw_store_create_callbacks(&callbacks, &store));
    group_parameter.name = "w";
    group_parameter.ndim = 1;
    group_parameter.dims[0] = 2;
    must(gw_shard_group_create(gangs, "group", &group_parameter, 1, nullptr, 1, &group));
    custom_optimizer.step = step_one;
    custom.shapes = custom.forward = custom.backward_input = compute;
    record.op = GW_BARRIER;
    for (gw_gang** place : {&gang_places.root, &gang_places.dp, &gang_places.rdp, &gang_places.sdp,
                            &gang_places.tp, &gang_places.pp, &gang_places.cp})
      *place = gang;
    attention.dim = 8;
    feed_forward.dim = feed_forward.ffn = 8;
    attention.heads = 2;
    begin_frame();
    must(gw_partition_create(gang, &partition));
    movement_options.axes = &zero;
    movement_options.axis_count = 1;
    must(gw_movement_create(partition, nullptr, GW_MOVEMENT_ALL_GATHER, &movement_options, &movement));
    std::ofstream(kTokenFile) << "tokens";
    source.path = kTokenFile;
    dataset_options.sources = &source;
    dataset_options.source_count = 1;
    must(gw_dataset_create(&dataset_options, &dataset));
    pipeline_options.microbatches = 1;
    must(gw_pipeline_create(gang, &pipeline_options, &pipeline));
    must(gw_metrics_create(model, nullptr, &metrics));
    plan_options.decoder = &plan_decoder;
    EXPECT_NE(mkdtemp(folder), nullptr);
    must(gw_checkpoints_create(gangs, folder, nullptr, &checkpoints));
    checkpoint_part.model = model;
  }
  ~World() {
    gw_dataset_release(dataset);
    std::remove(kTokenFile);
    gw_checkpoints_release(checkpoints);
    std::filesystem::remove_all(folder);
    gw_metrics_release(metrics);
    gw_pipeline_release(pipeline);
    gw_movement_release(movement);
    gw_partition_release(partition);
    gw_frame_release(frame);
    gw_shard_group_release(group);
    gw_store_release(store);
    gw_work_release(work);
    gw_bytes_release(bytes);
    gw_tensor_release(tensor);
    gw_parameter_release(parameter);
    gw_optimizer_release(optimizer);
    gw_module_release(described);
    gw_module_release(model);
    gw_gangs_release(gangs);
    gw_gang_release(gang);
    gw_error_release(error);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // --- handles, and lists of one handle
  void give(gw_error*& x) { x = error; }
  void give(const gw_error*& x) { x = error; }
  void give(gw_gang*& x) { x = gang; }
  void give(const gw_gang*& x) { x = gang; }
  void give(gw_gangs*& x) { x = gangs; }
  void give(const gw_gangs*& x) { x = gangs; }
  void give(gw_module*& x) { x = model; }
  void give(const gw_module*& x) { x = model; }
  void give(gw_optimizer*& x) { x = optimizer; }
  void give(const gw_optimizer*& x) { x = optimizer; }
  void give(gw_parameter*& x) { x = parameter; }
  void give(gw_frame*& x) { x = frame; }
  void give(gw_tensor*& x) { x = tensor; }
  void give(const gw_tensor*& x) { x = tensor; }
  void give(gw_work*& x) { x = work; }
  void give(const gw_partition*& x) { x = partition; }
  void give(gw_movement*& x) { x = movement; }
  void give(const gw_movement*& x) { x = movement; }
  void give(gw_pipeline*& x) { x = pipeline; }
  void give(const gw_pipeline*& x) { x = pipeline; }
  void give(gw_dataset*& x) { x = dataset; }
  void give(const gw_dataset*& x) { x = dataset; }
  void give(gw_shard_group*& x) { x = group; }
  void give(gw_checkpoints*& x) { x = checkpoints; }
  void give(const gw_checkpoints*& x) { x = checkpoints; }
  void give(gw_module* const*& x) { x = &described; }
  void give(gw_work* const*& x) { x = &work; }
  void give(gw_shard_group* const*& x) { x = &group; }
  // --- structs
  void give(const gw_gang_options*& x) { x = nullptr; }
  void give(const gw_mesh_options*& x) { x = nullptr; }
  void give(gw_mesh_options*& x) { x = &mesh_options; }
  void give(const gw_gang_places*& x) { x = &gang_places; }
  void give(const gw_movement_options*& x) { x = &movement_options; }
  void give(const gw_pipeline_options*& x) { x = &pipeline_options; }
  void give(const gw_decoder_options*& x) { x = nullptr; }
  void give(const gw_attention_options*& x) { x = &attention; }
  void give(const gw_feed_forward_options*& x) { x = &feed_forward; }
  void give(const gw_custom_options*& x) { x = &custom; }
  void give(const gw_custom_optimizer_options*& x) { x = &custom_optimizer; }
  void give(const gw_frame_options*& x) { x = nullptr; }
  void give(const gw_parallel_options*& x) { x = nullptr; }
  void give(const gw_shard_options*& x) { x = nullptr; }
  void give(const gw_tensor_parallel_options*& x) { x = nullptr; }
#define OPTIMIZER(kind) \
  void give(const gw_##kind##_options*& x) { x = nullptr; }
  OPTIMIZERS(OPTIMIZER)
#undef OPTIMIZER
  void give(const gw_step_options*& x) { x = nullptr; }
  void give(const gw_generate_options*& x) { x = nullptr; }
  void give(const gw_save_options*& x) { x = nullptr; }
  void give(gw_metrics*& x) { x = metrics; }
  void give(const gw_metrics*& x) { x = metrics; }
  void give(const gw_metrics_options*& x) { x = nullptr; }
  void give(const gw_metrics_step*& x) { x = nullptr; }
  void give(gw_metrics_row*& x) { x = &metrics_row; }
  void give(const gw_step_result*& x) { x = &result; }
  void give(const gw_plan_options*& x) { x = &plan_options; }
  void give(const char* const*& x) { x = &one_text; }
  void give(const gw_load_options*& x) { x = nullptr; }
  void give(const gw_lora_options*& x) { x = nullptr; }
  void give(const gw_fp8_options*& x) { x = nullptr; }
  void give(const gw_verify_options*& x) { x = nullptr; }
  void give(const gw_checkpoints_options*& x) { x = nullptr; }
  void give(const gw_checkpoint_part*& x) { x = &checkpoint_part; }
  void give(const gw_checkpoint_state*& x) { x = nullptr; }
  void give(const gw_restore_options*& x) { x = nullptr; }
  void give(const gw_parameter_options*& x) { x = &group_parameter; }
  void give(const gw_store_callbacks*& x) { x = &callbacks; }
  void give(const gw_collective*& x) { x = &record; }
  void give(const gw_dataset_options*& x) { x = &dataset_options; }
  void give(gw_data_batch*& x) { x = &data_batch; }
  void give(const gw_batch*& x) { x = &small.batch; }
  void give(gw_error_info*& x) { x = &info; }
  void give(gw_gang_traffic*& x) { x = &traffic; }
  void give(gw_parameter_info*& x) { x = &parameter_info; }
  void give(gw_partition_info*& x) { x = &partition_info; }
  void give(gw_pipeline_info*& x) { x = &pipeline_info; }
  void give(gw_pipeline_action*& x) { x = &pipeline_action; }
  void give(gw_memory_use*& x) { x = &memory; }
  void give(gw_decoder_options*& x) { x = &decoder_options; }
  void give(gw_memory_info*& x) { x = &host_memory; }
  void give(const gw_allocator*& x) { x = nullptr; }
  void give(gw_step_result*& x) { x = &result; }
  void give(gw_verify_result*& x) { x = nullptr; }
  void give(gw_call*& x) { x = &call; }
  void give(const gw_view*& x) { x = &small.input; }
  void give(gw_view*& x) { x = &view_place; }
  void give(DLManagedTensorVersioned*& x) { x = &managed; }
  // --- memory and numbers
  void give(const char*& x) { x = "w"; }
  void give(char*& x) { x = nullptr; }
  void give(const void*& x) { x = small.tokens; }
  void give(void*& x) { x = places.data(); }
  void give(void* const*& x) { x = &list_of_one; }
  void give(const int32_t*& x) { x = &zero; }
  void give(const int64_t*& x) { x = small.shape; }
  void give(int32_t*& x) { x = reinterpret_cast<int32_t*>(places.data()); }
  void give(int64_t*& x) { x = places.data(); }
  void give(uint64_t*& x) { x = reinterpret_cast<uint64_t*>(places.data()); }
  void give(double*& x) { x = reinterpret_cast<double*>(places.data()); }
  void give(gw_interrupt_fn& x) { x = nullptr; }
  void give(gw_free_fn& x) { x = nullptr; }
  void give(gw_schedule_fn& x) { x = rate; }
  void give(gw_build_fn& x) { x = build_small_llama; }
  void give(gw_groups_step_fn& x) { x = no_step; }
  void give(double& x) { x = 1; }
  template <typename Handle>
  // Where a call writes a handle.
  void give(Handle**& x) {
    handed_out.fill(this);
    x = reinterpret_cast<Handle**>(handed_out.data());
  }

  static void must(gw_status status) { ASSERT_EQ(status, GW_OK) << last_error().message; }
  // A backward needs a frame that has had its forward.
  void begin_frame() {
    must(gw_frame_create(model, nullptr, &frame));
    const std::array<gw_view, 2> inputs = {small.input, small.input};
    std::array<gw_tensor*, 2> outputs{};
    size_t count = 0;
    must(gw_module_forward(model, inputs.data(), 2, frame, nullptr, outputs.data(), 2, &count));
    for (gw_tensor* output : outputs) gw_tensor_release(output);
  }

  gw_error* error = nullptr;
  gw_gang* gang = nullptr;
  gw_gangs* gangs = nullptr;
  gw_module *model = nullptr, *described = nullptr;
  gw_optimizer* optimizer = nullptr;
  gw_parameter* parameter = nullptr;
  gw_frame* frame = nullptr;
  gw_tensor* tensor = nullptr;
  gw_bytes* bytes = nullptr;
  gw_work* work = nullptr;
  gw_store* store = nullptr;
  gw_shard_group* group = nullptr;
  gw_partition* partition = nullptr;
  gw_movement* movement = nullptr;
  gw_movement_options movement_options = with(gw_movement_options_init);
  gw_partition_info partition_info = with(gw_partition_info_init);
  static constexpr const char* kTokenFile = "/tmp/gangway-one-null-test.u8";
  gw_dataset* dataset = nullptr;
  gw_data_source source = with(gw_data_source_init);
  gw_dataset_options dataset_options = with(gw_dataset_options_init);
  gw_data_batch data_batch = with(gw_data_batch_init);
  gw_metrics* metrics = nullptr;
  gw_metrics_row metrics_row = with(gw_metrics_row_init);
  gw_decoder_options plan_decoder = small_llama();
  gw_plan_options plan_options = with(gw_plan_options_init);
  const char* one_text = "lr";
  gw_pipeline* pipeline = nullptr;
  char folder[40] = "/tmp/gangway-null-XXXXXX";
  gw_checkpoints* checkpoints = nullptr;
  gw_checkpoint_part checkpoint_part = with(gw_checkpoint_part_init);
  gw_pipeline_options pipeline_options = with(gw_pipeline_options_init);
  gw_pipeline_info pipeline_info = with(gw_pipeline_info_init);
  gw_pipeline_action pipeline_action = with(gw_pipeline_action_init);
  gw_attention_options attention = with(gw_attention_options_init);
  gw_feed_forward_options feed_forward = with(gw_feed_forward_options_init);
  gw_mesh_options mesh_options = with(gw_mesh_options_init);
  gw_gang_places gang_places = with(gw_gang_places_init);
  gw_custom_options custom = with(gw_custom_options_init);
  gw_custom_optimizer_options custom_optimizer = with(gw_custom_optimizer_options_init);
  gw_parameter_options group_parameter = with(gw_parameter_options_init);
  gw_store_callbacks callbacks = with(gw_store_callbacks_init);
  gw_collective record = with(gw_collective_init);
  small_batch small{};
  gw_error_info info = with(gw_error_info_init);
  gw_gang_traffic traffic = with(gw_gang_traffic_init);
  gw_parameter_info parameter_info = with(gw_parameter_info_init);
  gw_memory_use memory = with(gw_memory_use_init);
  gw_decoder_options decoder_options = with(gw_decoder_options_init);
  gw_memory_info host_memory = with(gw_memory_info_init);
  gw_step_result result = with(gw_step_result_init);
  gw_call call{};
  gw_view view_place{};
  DLManagedTensorVersioned managed{};
  std::array<int64_t, 256> places{};  // where a call writes its results
  void* list_of_one = places.data();
  int32_t zero = 0;
  std::array<void*, 64> handed_out{};
};

// Valid values for numbers, by their names. Lists have one element.
template <typename Number>
Number number(const std::string& name) {
  if (name == "capacity" || name == "out_capacity") return static_cast<Number>(64);
  if (name == "dtype") return static_cast<Number>(GW_F32);
  if (name == "reduce") return static_cast<Number>(GW_SUM);
  for (const char* one : {"count", "size", "ndim", "bytes", "tp", "pp", "cp", "every", "input_dim",
                          "output_dim", "rows", "dim", "ffn", "heads"})
    if (name == one || (name.size() > 6 && name.ends_with("_count"))) return 1;
  return 0;
}

template <typename Argument>
Argument valid(World& world, const std::string& function, const std::string& name) {
  Argument x{};
  if constexpr (std::is_integral_v<Argument>) {
    x = number<Argument>(name);
  } else if (!std::is_pointer_v<Argument> || tried(function, name)) {
    world.give(x);
  }
  return x;
}

class OneNull : public testing::Test {
 protected:
  template <typename... Arguments>
  void try_each(const char* function, gw_status (*entry)(Arguments...),
                const std::array<const char*, sizeof...(Arguments)>& names) {
    constexpr std::array<bool, sizeof...(Arguments)> pointers = {std::is_pointer_v<Arguments>...};
    for (size_t null = 0; null < sizeof...(Arguments); ++null) {
      if (!pointers[null] || !tried(function, names[null])) continue;
      world_.handed_out = {};
      const gw_status status = [&]<size_t... I>(std::index_sequence<I...>) {
        return entry((I == null ? Arguments{} : valid<Arguments>(world_, function, names[I]))...);
      }
      (std::index_sequence_for<Arguments...>{});
      expect_refused(function, names[null], status);
    }
  }

  void expect_refused(const std::string& function, const std::string& name, gw_status status) {
    const std::string where = function + "." + name;
    EXPECT_EQ(status, GW_E_INVALID_ARGUMENT) << where;
    EXPECT_EQ(world_.handed_out[0], nullptr) << where << ": what is handed out is not null after a failure";
    ++checked_;
    if (function == "gw_last_error") return;  // does not change the last error
    const std::string why = last_error().message;
    EXPECT_NE(why.find(name), std::string::npos) << where << ": " << why;
  }

  World world_;
  int checked_ = 0;
};

template <typename... Names>
constexpr std::array<const char*, sizeof...(Names)> list(Names... names) {
  return {names...};
}

TEST_F(OneNull, IsRefusedByItsName) {
#define ENTRY(function, ...) try_each(#function, function, list(__VA_ARGS__));
#include "arguments.inc"
#undef ENTRY
  EXPECT_GT(checked_, 250);
}

}  // namespace
