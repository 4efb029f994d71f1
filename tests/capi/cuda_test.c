/* The C ABI on device "cuda": the module for NVIDIA GPUs over the software GPU (tests/gpu_emulation), which
 * GANGWAY_MODULES in ctest's environment names. Each rank is a thread with an emulated GPU of its own. */
#include "models.h"

#include <math.h>
#include <unistd.h>

enum { kSteps = 3 };

typedef struct job {
  const char* device;
  double losses[kSteps];
  const char* save_to; /* null: does not save */
  const char* load;    /* null: starts from the initial values */
} job;

static void train(rank* me) {
  job* work = me->user;
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.master_dtype = GW_F64;
  p.seed = 3;
  const gw_decoder_options o = small_llama();
  EXPECT(strcmp(gw_gang_device(me->gang), work->device) == 0);
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &model));
  EXPECT_OK(gw_parallelize(model, gangs, &p));
  if (work->load != NULL) EXPECT_OK(gw_module_load(model, work->load, NULL));
  gw_adamw_options a;
  gw_adamw_options_init(&a, sizeof a);
  a.lr = 0.01;
  EXPECT_OK(gw_adamw_create(model, &a, &opt));
  small_batch b;
  fill_batch(&b, 4 / me->size, me->index * 4 / me->size);
  gw_step_options options;
  gw_step_options_init(&options, sizeof options);
  options.max_grad_norm = 1;
  for (int step = 0; step < kSteps; ++step) {
    gw_step_result r;
    gw_step_result_init(&r, sizeof r);
    EXPECT_OK(gw_train_step(model, opt, &b.batch, &options, NULL, &r));
    if (me->index == 0) work->losses[step] = r.loss;
  }
  if (work->save_to != NULL) EXPECT_OK(gw_module_save(model, work->save_to, NULL));
  gw_optimizer_release(opt);
  gw_module_release(model);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static job run_on(const char* device, int32_t ranks, const char* load, const char* save_to) {
  job work = {device, {0}, save_to, load};
  run_ranks_on(device, ranks, train, &work);
  return work;
}

static void training_on_gpus_gives_the_cpus_losses(void** state) {
  (void)state;
  const job cpu = run_on("cpu", 1, NULL, NULL);
  for (int32_t n = 1; n <= 2; ++n) {
    const job gpu = run_on("cuda", n, NULL, NULL);
    for (int i = 0; i < kSteps; ++i) assert_true(fabs(cpu.losses[i] - gpu.losses[i]) < 1e-10);
  }
}

/* Weights that two GPUs saved continue with the same losses on a CPU, and the other way round. */
static void what_one_device_saves_the_other_loads(void** state) {
  (void)state;
  char gpus[] = "/tmp/gangway_cuda_XXXXXX", cpus[] = "/tmp/gangway_cuda_XXXXXX";
  assert_non_null(mkdtemp(gpus));
  assert_non_null(mkdtemp(cpus));
  run_on("cuda", 2, NULL, gpus);
  run_on("cpu", 1, NULL, cpus);
  const job from_gpus = run_on("cpu", 1, gpus, NULL), from_cpu = run_on("cuda", 1, cpus, NULL);
  for (int i = 0; i < kSteps; ++i) assert_true(fabs(from_gpus.losses[i] - from_cpu.losses[i]) < 1e-10);
  char command[128];
  snprintf(command, sizeof command, "rm -r %s %s", gpus, cpus);
  assert_int_equal(system(command), 0);
}

/* A view tells the device of its data. DLPack passes a gathered tensor to another library as memory of a
 * GPU. */
static void look(rank* me) {
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_parameter* parameter = NULL;
  gw_tensor* whole = NULL;
  gw_view view;
  void* handle = NULL;
  const gw_decoder_options o = small_llama();
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &model));
  EXPECT_OK(gw_parallelize(model, gangs, NULL));
  EXPECT_OK(gw_module_parameter(model, 0, &parameter));
  EXPECT_OK(gw_parameter_view(parameter, GW_PART_VALUE, &view));
  EXPECT(view.device_type == GW_DEVICE_CUDA && view.device_id == me->index);
  EXPECT_OK(gw_parameter_gather(parameter, NULL, &whole));
  EXPECT_OK(gw_tensor_view(whole, &view));
  EXPECT(view.device_type == GW_DEVICE_CUDA && view.device_id == me->index && view.shape[0] == 11);
  EXPECT_STATUS(gw_gang_native_handle(me->gang, &handle), GW_E_INVALID_STATE, "first collective");
  float* sums = NULL;
  EXPECT_OK(gw_gang_alloc(me->gang, 4 * sizeof *sums, (void**)&sums));
  EXPECT_OK(gw_gang_all_reduce(me->gang, sums, sums, 4, GW_F32, GW_SUM, NULL));
  EXPECT_OK(gw_gang_native_handle(me->gang, &handle));
  EXPECT(handle != NULL);
  gw_gang_free(me->gang, sums);
  /* The copy on the host has the values that a CPU would have. */
  gw_tensor* copy = NULL;
  EXPECT_OK(gw_tensor_to_host(whole, NULL, &copy));
  EXPECT_OK(gw_tensor_view(copy, &view));
  EXPECT(view.device_type == GW_DEVICE_CPU && view.shape[0] == 11 && view.shape[1] == 8);
  for (int i = 0; i < 11 * 8; ++i) EXPECT(isfinite(((const float*)view.data)[i]));
  gw_tensor_release(copy);
  gw_tensor_release(whole);
  gw_parameter_release(parameter);
  gw_module_release(model);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void views_and_handles_are_the_gpus(void** state) {
  (void)state;
  run_ranks_on("cuda", 2, look, NULL);
}

/* A stream of the program itself, on the first GPU. */
typedef struct own_stream {
  const cuda_runtime* cuda;
  void* stream;
} own_stream;
static own_stream first_gpus_stream(void) {
  own_stream own = {cuda_calls(), NULL};
  assert_int_equal(own.cuda->set_device(0), 0);
  assert_int_equal(own.cuda->create_stream(&own.stream, /*cudaStreamNonBlocking*/ 1, 0), 0);
  return own;
}

/* A call may collect work to launch it together, but all of it is on the caller's stream when the call
 * returns. */
static void use_own_stream(rank* me) {
  const own_stream* own = me->user;
  const cuda_runtime* cuda = own->cuda;
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  const gw_decoder_options o = small_llama();
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &model));
  EXPECT_OK(gw_parallelize(model, gangs, NULL));
  small_batch b;
  fill_batch(&b, 2, 0);
  for (int time = 0; time < 4; ++time) {
    gw_tensor *out = NULL, *copy = NULL;
    gw_view view;
    size_t count = 0;
    float here[256];
    EXPECT_OK(gw_module_forward(model, b.batch.inputs, 1, NULL, own->stream, &out, 1, &count));
    EXPECT_OK(gw_tensor_view(out, &view));
    const size_t values = (size_t)(view.shape[0] * view.shape[1] * view.shape[2]);
    EXPECT(view.ndim == 3 && values <= 256);
    EXPECT(cuda->copy(here, view.data, values * sizeof *here, /*cudaMemcpyDefault*/ 4, own->stream) == 0);
    EXPECT(cuda->synchronize(own->stream) == 0);
    EXPECT_OK(gw_tensor_to_host(out, own->stream, &copy));
    EXPECT_OK(gw_tensor_view(copy, &view));
    for (size_t i = 0; i < values; ++i) EXPECT(isfinite(here[i]) && here[i] == ((const float*)view.data)[i]);
    gw_tensor_release(copy);
    gw_tensor_release(out);
  }
  gw_module_release(model);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}
static void the_work_of_a_call_is_on_the_callers_stream_when_it_returns(void** state) {
  (void)state;
  own_stream own = first_gpus_stream();
  run_ranks_on("cuda", 1, use_own_stream, &own);
  assert_int_equal(own.cuda->destroy_stream(own.stream), 0);
}

/* A read of a state on the device's own stream is ordered after the step that wrote it on the caller's
 * stream. */
static void read_state(rank* me) {
  const own_stream* own = me->user;
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  gw_parameter* head = NULL;
  small_batch b;
  float moments[11 * 8], *sums = NULL;
  gw_view view;
  const gw_decoder_options o = small_llama();
  fill_batch(&b, 4, 0);
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &model));
  EXPECT_OK(gw_parallelize(model, gangs, NULL));
  EXPECT_OK(gw_adamw_create(model, NULL, &opt));
  EXPECT_OK(gw_module_find_parameter(model, "lm_head.weight", &head));
  EXPECT_OK(gw_gang_alloc(me->gang, sizeof moments, (void**)&sums));
  for (int time = 0; time < 4; ++time) {
    EXPECT_OK(gw_train_step(model, opt, &b.batch, NULL, own->stream, NULL));
    EXPECT_OK(gw_parameter_state(head, opt, "exp_avg", &view));
    EXPECT_OK(gw_gang_all_reduce(me->gang, view.data, sums, 11 * 8, GW_F32, GW_SUM, NULL));
    take(moments, &view, NULL);
    view.data = sums;
    for (int i = 0; i < 11 * 8; ++i) EXPECT(at(&view, i) == moments[i]);
  }
  gw_gang_free(me->gang, sums);
  gw_parameter_release(head);
  gw_optimizer_release(opt);
  gw_module_release(model);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}
static void a_state_is_read_after_the_step_on_another_stream(void** state) {
  (void)state;
  own_stream own = first_gpus_stream();
  run_ranks_on("cuda", 1, read_state, &own);
  assert_int_equal(own.cuda->destroy_stream(own.stream), 0);
}

/* A stream that the library does not know is ordered after what the library has put on others. It may be
 * destroyed afterwards. */
static void order_a_stream(rank* me) {
  enum { kCount = 1 << 18, kBusy = 60 };
  const own_stream* own = me->user;
  const cuda_runtime* cuda = own->cuda;
  const int64_t shape[1] = {kCount};
  gw_tensor *from = NULL, *between = NULL, *to = NULL;
  gw_view source, passing, target;
  static float values[kCount], got[kCount];
  EXPECT_OK(gw_gang_alloc_tensor(me->gang, shape, 1, GW_F32, &from));
  EXPECT_OK(gw_gang_alloc_tensor(me->gang, shape, 1, GW_F32, &between));
  EXPECT_OK(gw_gang_alloc_tensor(me->gang, shape, 1, GW_F32, &to));
  EXPECT_OK(gw_tensor_view(from, &source));
  EXPECT_OK(gw_tensor_view(between, &passing));
  EXPECT_OK(gw_tensor_view(to, &target));
  give(&target, values, NULL);
  for (int i = 0; i < kCount; ++i) values[i] = (float)i;
  give(&source, values, NULL);
  /* The plain form would wait for the GPU. */
  gw_work* works[kBusy] = {NULL};
  for (int i = 0; i < kBusy; ++i) {
    const int last = i == kBusy - 1;
    EXPECT_OK(gw_gang_all_reduce_async(me->gang, last ? passing.data : source.data,
                                       last ? target.data : passing.data, kCount, GW_F32, GW_SUM, own->stream,
                                       &works[i]));
  }
  void* later = NULL;
  EXPECT(cuda->create_stream(&later, /*cudaStreamNonBlocking*/ 1, 0) == 0);
  EXPECT_OK(gw_tensor_order(to, later));
  EXPECT(cuda->copy(got, target.data, sizeof got, /*cudaMemcpyDefault*/ 4, later) == 0);
  EXPECT(cuda->synchronize(later) == 0 && cuda->destroy_stream(later) == 0);
  for (int i = 0; i < kCount; ++i) EXPECT(got[i] == values[i]);
  EXPECT_OK(gw_work_wait_many(works, kBusy, -1));
  for (int i = 0; i < kBusy; ++i) gw_work_release(works[i]);
  EXPECT_OK(gw_tensor_order(to, own->stream));
  EXPECT_OK(gw_gang_all_reduce(me->gang, source.data, target.data, kCount, GW_F32, GW_SUM, NULL));
  gw_tensor_release(from);
  gw_tensor_release(between);
  gw_tensor_release(to);
}
static void a_stream_is_ordered_after_all_that_the_library_put_on_the_gpu(void** state) {
  (void)state;
  own_stream own = first_gpus_stream();
  run_ranks_on("cuda", 1, order_a_stream, &own);
  assert_int_equal(own.cuda->destroy_stream(own.stream), 0);
}

/* Memory of the host is refused on every rank in a collective of GPUs. */
static void host_memory(rank* me) {
  float values[4] = {1, 2, 3, 4};
  EXPECT_STATUS(gw_gang_all_reduce(me->gang, values, values, 4, GW_F32, GW_SUM, NULL), GW_E_INVALID_ARGUMENT,
                "the input is plain memory of the host");
}
static void host_memory_in_a_collective_of_gpus_is_refused(void** state) {
  (void)state;
  run_ranks_on("cuda", 2, host_memory, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_on_gpus_gives_the_cpus_losses),
      cmocka_unit_test(what_one_device_saves_the_other_loads),
      cmocka_unit_test(views_and_handles_are_the_gpus),
      cmocka_unit_test(the_work_of_a_call_is_on_the_callers_stream_when_it_returns),
      cmocka_unit_test(a_state_is_read_after_the_step_on_another_stream),
      cmocka_unit_test(a_stream_is_ordered_after_all_that_the_library_put_on_the_gpu),
      cmocka_unit_test(host_memory_in_a_collective_of_gpus_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
