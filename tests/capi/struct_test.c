/* Every sized struct with struct_size 0, too small, exact, with 8 more bytes of zeros, and with 8 more bytes
 * of which one is set. Calls refuse or read input structs, and fill as much of a result struct as the caller
 * has room for. */
#include "models.h"
#include "optimizer_rows.h"

typedef struct matrix {
  gw_gang* gang;
  gw_gangs* gangs;
  gw_module* model;
  gw_optimizer* opt;
  gw_parameter* parameter;
  gw_partition* partition;
  gw_pipeline* pipeline;
  gw_error* error;
  small_batch batch;
} matrix;

static matrix m;

/* Each function passes `x` (a struct that begins with its size) to a call that reads it, and releases what
 * the call made. */
static gw_status gang_options(void* x) {
  gw_gang* gang = NULL;
  const gw_status status = gw_gang_create(x, &gang);
  gw_gang_release(gang);
  return status;
}
static gw_status store_callbacks(void* x) {
  gw_store* store = NULL;
  const gw_status status = gw_store_create_callbacks(x, &store);
  gw_store_release(store);
  return status;
}
static gw_status collective(void* x) { return gw_gang_run(m.gang, x, NULL, NULL); }
static gw_status mesh_options(void* x) {
  gw_gangs* gangs = NULL;
  const gw_status status = gw_gangs_create(m.gang, x, &gangs);
  gw_gangs_release(gangs);
  return status;
}
static gw_status gang_places(void* x) {
  gw_gangs* gangs = NULL;
  const gw_status status = gw_gangs_create_of(x, &gangs);
  gw_gangs_release(gangs);
  return status;
}
static gw_status movement_options(void* x) {
  gw_movement* movement = NULL;
  const gw_status status = gw_movement_create(m.partition, NULL, GW_MOVEMENT_ALL_GATHER, x, &movement);
  gw_movement_release(movement);
  return status;
}
static gw_status pipeline_options(void* x) {
  gw_pipeline* pipeline = NULL;
  const gw_status status = gw_pipeline_create(m.gang, x, &pipeline);
  gw_pipeline_release(pipeline);
  return status;
}
static gw_status drop(gw_status status, gw_module* model) {
  gw_module_release(model);
  return status;
}
static gw_status decoder_options(void* x) {
  gw_module* model = NULL;
  return drop(gw_decoder_create(x, &model), model);
}
static gw_status attention_options(void* x) {
  gw_module* model = NULL;
  const gw_status status = gw_attention_create(x, &model);
  return drop(status, model);
}
static gw_status custom_options(void* x) {
  gw_module* model = NULL;
  const gw_status status = gw_custom_create(x, &model);
  return drop(status, model);
}
static line a_line;
static gw_status parameter_options(void* x) {
  gw_custom_options c;
  gw_module* model = NULL;
  line_options(&c, &a_line, x);
  const gw_status status = gw_custom_create(&c, &model);
  return drop(status, model);
}
static gw_status init_options(void* x) {
  gw_parameter_options p;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 1;
  p.initializer = x;
  return parameter_options(&p);
}
static gw_status frame_options(void* x) {
  gw_frame* frame = NULL;
  const gw_status status = gw_frame_create(m.model, x, &frame);
  gw_frame_release(frame);
  return status;
}
static gw_status with_llama(gw_status (*use)(gw_module* model, void* x), void* x) {
  gw_module* model = NULL;
  const gw_decoder_options o = small_llama();
  assert_ok(gw_decoder_create(&o, &model));
  const gw_status status = use(model, x);
  gw_module_release(model);
  return status;
}
static gw_status use_parallel(gw_module* model, void* x) { return gw_parallelize(model, m.gangs, x); }
static gw_status parallel_options(void* x) { return with_llama(use_parallel, x); }
static gw_status use_shard(gw_module* model, void* x) { return gw_fully_shard(model, "", m.gangs, x); }
static gw_status shard_options(void* x) { return with_llama(use_shard, x); }
static gw_status dtype_rule(void* x) {
  gw_shard_options s;
  gw_shard_options_init(&s, sizeof s);
  s.rules = x;
  s.rule_count = 1;
  return shard_options(&s);
}
static gw_status use_tensor_parallel(gw_module* model, void* x) {
  return gw_tensor_parallel(model, m.gangs, x);
}
static gw_status tensor_parallel_options(void* x) { return with_llama(use_tensor_parallel, x); }
static gw_status plan_row(void* x) {
  gw_tensor_parallel_options o;
  gw_tensor_parallel_options_init(&o, sizeof o);
  o.rows = x;
  o.row_count = 1;
  return tensor_parallel_options(&o);
}
#define OPTIMIZER(kind)                                            \
  static gw_status kind##_options(void* x) {                       \
    gw_optimizer* opt = NULL;                                      \
    const gw_status status = gw_##kind##_create(m.model, x, &opt); \
    gw_optimizer_release(opt);                                     \
    return status;                                                 \
  }
OPTIMIZERS(OPTIMIZER)
#undef OPTIMIZER
static gw_status step_one(void* user, const gw_optimizer_call* call) {
  (void)user;
  (void)call;
  return GW_OK;
}
static gw_status custom_optimizer_options(void* x) {
  gw_optimizer* opt = NULL;
  const gw_status status = gw_custom_optimizer_create(m.model, x, &opt);
  gw_optimizer_release(opt);
  return status;
}
static gw_status optimizer_rule(void* x) {
  gw_sgd_options s;
  gw_sgd_options_init(&s, sizeof s);
  s.rules = x;
  s.rule_count = 1;
  return sgd_options(&s);
}
static gw_status batch(void* x) { return gw_train_step(m.model, m.opt, x, NULL, NULL, NULL); }
static gw_status step_options(void* x) {
  return gw_train_step(m.model, m.opt, &m.batch.batch, x, NULL, NULL);
}
static gw_status generate_options(void* x) {
  const int64_t prompt = 1;
  int64_t out[64];
  size_t count = 0;
  return gw_generate(m.model, &prompt, 1, x, NULL, out, 64, &count);
}
static gw_status save_options(void* x) { return gw_module_save(m.model, "/tmp/gangway-struct-test", x); }
static gw_status load_options(void* x) { return gw_module_load(m.model, "/tmp/gangway-struct-test", x); }

/* What the defaults of a struct do not have. */
static void need_callbacks(void* x) {
  line l;
  gw_custom_options c;
  memset(&l, 0, sizeof l);
  line_options(&c, &a_line, NULL);
  c.parameter_count = 0;
  c.struct_size = ((gw_custom_options*)x)->struct_size;
  memcpy(x, &c, sizeof c);
}
static gw_status put(void* u, const char* k, const void* v, size_t n) {
  return (void)u, (void)k, (void)v, (void)n, GW_OK;
}
static gw_status get(void* u, const char* k, void* v, size_t n, int64_t* s) {
  return (void)u, (void)k, (void)v, (void)n, *s = -1, GW_OK;
}
static gw_status rid(void* u, const char* k) { return (void)u, (void)k, GW_OK; }
static void need_store(void* x) {
  gw_store_callbacks* c = x;
  c->put = put;
  c->get = get;
  c->remove = rid;
}
static void* take_block(void* u, size_t bytes, size_t alignment) {
  return (void)u, aligned_alloc(alignment, bytes);
}
static void give_block(void* u, void* data, size_t bytes) { (void)u, (void)bytes, free(data); }
static void need_functions(void* x) {
  gw_allocator* a = x;
  a->allocate = take_block;
  a->deallocate = give_block;
}
static gw_status allocator(void* x) {
  const gw_status status = gw_allocator_set(x);
  if (status == GW_OK) gw_allocator_set(NULL);
  return status;
}
static void need_barrier(void* x) { ((gw_collective*)x)->op = GW_BARRIER; }
static void need_dims(void* x) {
  ((gw_attention_options*)x)->dim = 8;
  ((gw_attention_options*)x)->heads = 2;
}
static void need_parameter(void* x) {
  gw_parameter_options* p = x;
  p->name = "w";
  p->ndim = 1;
  p->dims[0] = 1;
}
static void need_dtype(void* x) {
  ((gw_dtype_rule*)x)->pattern = "**";
  ((gw_dtype_rule*)x)->dtype = GW_F32;
}
static void need_module(void* x) { ((gw_plan_row*)x)->pattern = "lm_head"; }
static void need_step(void* x) { ((gw_custom_optimizer_options*)x)->step = step_one; }
static void need_pattern(void* x) { ((gw_optimizer_rule*)x)->pattern = "**"; }
static void need_batch(void* x) {
  gw_batch* b = x;
  const size_t size = b->struct_size;
  *b = m.batch.batch;
  b->struct_size = size;
}
static void need_one_token(void* x) { ((gw_generate_options*)x)->token_count = 1; }

static void need_gangs(void* x) {
  gw_gang_places* const p = x;
  p->root = p->dp = p->rdp = p->sdp = p->tp = p->pp = p->cp = m.gang;
}
static void need_microbatch(void* x) { ((gw_pipeline_options*)x)->microbatches = 1; }
static void need_axis(void* x) {
  static const int32_t axis = 0;
  ((gw_movement_options*)x)->axes = &axis;
  ((gw_movement_options*)x)->axis_count = 1;
}

#define INPUT(type, call, need) \
  { #type, sizeof(gw_##type), (void (*)(void*, size_t))(void (*)(void))gw_##type##_init, call, need }
static const struct {
  const char* name;
  size_t size;
  void (*init)(void*, size_t);
  gw_status (*call)(void*);
  void (*need)(void*);
} inputs[] = {INPUT(allocator, allocator, need_functions),
              INPUT(gang_options, gang_options, NULL),
              INPUT(store_callbacks, store_callbacks, need_store),
              INPUT(collective, collective, need_barrier),
              INPUT(mesh_options, mesh_options, NULL),
              INPUT(gang_places, gang_places, need_gangs),
              INPUT(movement_options, movement_options, need_axis),
              INPUT(pipeline_options, pipeline_options, need_microbatch),
              INPUT(decoder_options, decoder_options, NULL),
              INPUT(attention_options, attention_options, need_dims),
              INPUT(custom_options, custom_options, need_callbacks),
              INPUT(parameter_options, parameter_options, need_parameter),
              INPUT(init_options, init_options, NULL),
              INPUT(frame_options, frame_options, NULL),
              INPUT(parallel_options, parallel_options, NULL),
              INPUT(shard_options, shard_options, NULL),
              INPUT(dtype_rule, dtype_rule, need_dtype),
              INPUT(tensor_parallel_options, tensor_parallel_options, NULL),
              INPUT(plan_row, plan_row, need_module),
              OPTIMIZER_INPUTS,
              INPUT(custom_optimizer_options, custom_optimizer_options, need_step),
              INPUT(optimizer_rule, optimizer_rule, need_pattern),
              INPUT(batch, batch, need_batch),
              INPUT(step_options, step_options, NULL),
              INPUT(generate_options, generate_options, need_one_token),
              INPUT(save_options, save_options, NULL),
              INPUT(load_options, load_options, NULL)};

/* Allocates exactly `size` bytes, so that the address sanitizer notices a read after them. */
static char* made(size_t i, size_t size) {
  char* x = malloc(size);
  memset(x, 0xee, size);
  inputs[i].init(x, size);
  return x;
}

static void inputs_of_every_size(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i) {
    const size_t exact = inputs[i].size;
    print_message("%s\n", inputs[i].name);
    char* x = made(i, exact + 8);
    assert_int_equal(*(size_t*)x, exact + 8);
    /* init sets all of it to zero */
    for (size_t at = exact; at < exact + 8; ++at) assert_int_equal(x[at], 0);
    if (inputs[i].need != NULL) inputs[i].need(x);
    assert_ok(inputs[i].call(x)); /* a larger caller, whose additional fields are zero */
    x[exact + 7] = 1;
    assert_refused_as(inputs[i].call(x), GW_E_NOT_SUPPORTED, "sets a field at byte");
    x[exact + 7] = 0;
    for (size_t bad = 0; bad < 16; ++bad) { /* zero, and too small for the first two fields */
      *(size_t*)x = bad;
      assert_refused(inputs[i].call(x), "struct_size is");
    }
    *(size_t*)x = (size_t)0xeeeeeeeeeeeeeeee; /* no init has set it up */
    assert_refused(inputs[i].call(x), "struct_size is");
    free(x);
    x = made(i, exact);
    if (inputs[i].need != NULL) inputs[i].need(x);
    assert_ok(inputs[i].call(x));
    /* Unknown extensions are refused. */
    gw_ext ext = {7, 0, NULL};
    ((gw_save_options*)x)->next = &ext;
    assert_refused_as(inputs[i].call(x), GW_E_NOT_SUPPORTED, "extension of kind 7");
    free(x);
    /* An older caller of each smaller size: the missing fields have their defaults, so only a required field
     * may be missing. */
    for (size_t size = 16; size < exact; size += 8) {
      x = made(i, size);
      const gw_status status = inputs[i].call(x);
      if (status != GW_OK && inputs[i].need == NULL) fail_msg("of %zu bytes: %s", size, last_error().message);
      if (status != GW_OK) assert_int_equal(status, GW_E_INVALID_ARGUMENT);
      assert_null(strstr(last_error().message, "struct_size"));
      free(x);
    }
  }
}

#define RESERVED(type) {#type, offsetof(gw_##type, reserved)},
static const struct {
  const char* name;
  size_t offset;
} reserved[] = {
#include "reserved.inc"
};

/* A later level may give a reserved field a name. An older library refuses what it does not know. */
static void a_reserved_field_that_is_set_is_refused(void** state) {
  (void)state;
  for (size_t r = 0; r < sizeof reserved / sizeof *reserved; ++r) {
    size_t i = 0;
    while (i < sizeof inputs / sizeof *inputs && strcmp(inputs[i].name, reserved[r].name) != 0) ++i;
    if (i == sizeof inputs / sizeof *inputs) fail_msg("no call reads a gw_%s", reserved[r].name);
    char* x = made(i, inputs[i].size);
    if (inputs[i].need != NULL) inputs[i].need(x);
    assert_ok(inputs[i].call(x));
    for (size_t byte = 0; byte < 4; ++byte) {
      x[reserved[r].offset + byte] = 1;
      if (inputs[i].call(x) == GW_OK) fail_msg("gw_%s.reserved is not looked at", reserved[r].name);
      assert_refused(inputs[i].call(x), "reserved is");
      x[reserved[r].offset + byte] = 0;
    }
    assert_ok(inputs[i].call(x));
    free(x);
  }
}

static gw_status traffic(void* x) { return gw_gang_get_traffic(m.gang, x); }
static gw_status parameter_info(void* x) { return gw_parameter_describe(m.parameter, x); }
static gw_status partition_info(void* x) { return gw_partition_describe(m.partition, x); }
static gw_status pipeline_info(void* x) { return gw_pipeline_describe(m.pipeline, x); }
/* A forward and a backward in turn. The action at the end of the pass is skipped. */
static gw_status pipeline_action(void* x) {
  static int done = 0;
  gw_pipeline_action over;
  gw_pipeline_action_init(&over, sizeof over);
  if (done == 2) {
    assert_ok(gw_pipeline_next(m.pipeline, NULL, &over));
    done = 0;
  }
  const gw_status status = gw_pipeline_next(m.pipeline, NULL, x);
  if (status != GW_OK) return status;
  ++done;
  return gw_pipeline_done(m.pipeline, NULL, 0, NULL);
}
static gw_status memory_use(void* x) { return gw_module_memory(m.model, x); }
static gw_status step_result(void* x) { return gw_eval_step(m.model, &m.batch.batch, NULL, NULL, x); }
static gw_status memory_info(void* x) { return gw_host_memory(x); }
static gw_status error_info(void* x) { return gw_error_describe(m.error, x); }

static const struct {
  const char* name;
  size_t size;
  void (*init)(void*, size_t);
  gw_status (*call)(void*);
  size_t offset; /* of a field that the call sets to another value than zero */
} outputs[] = {INPUT(gang_traffic, traffic, offsetof(gw_gang_traffic, calls)),
               INPUT(parameter_info, parameter_info, offsetof(gw_parameter_info, name)),
               INPUT(partition_info, partition_info, offsetof(gw_partition_info, active)),
               INPUT(pipeline_info, pipeline_info, offsetof(gw_pipeline_info, stages)),
               INPUT(pipeline_action, pipeline_action, offsetof(gw_pipeline_action, kind)),
               INPUT(memory_use, memory_use, offsetof(gw_memory_use, master)),
               INPUT(step_result, step_result, offsetof(gw_step_result, loss)),
               INPUT(memory_info, memory_info, offsetof(gw_memory_info, total)),
               INPUT(error_info, error_info, offsetof(gw_error_info, code))};

static void results_of_every_size(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; ++i) {
    const size_t exact = outputs[i].size;
    print_message("%s\n", outputs[i].name);
    for (size_t size = 16; size <= exact + 8; size += 8) {
      char *x = malloc(size), zero[4] = {0};
      outputs[i].init(x, size);
      assert_ok(outputs[i].call(x));
      assert_int_equal(*(size_t*)x, size);
      if (size >= outputs[i].offset + 8) assert_memory_not_equal(x + outputs[i].offset, zero, 4);
      for (size_t at = exact; at < size; ++at) assert_int_equal(x[at], 0);
      free(x);
    }
    /* With 8 more bytes that are not zero: the call only writes a result, and leaves what the library does
     * not know unchanged. */
    char* x = malloc(exact + 8);
    outputs[i].init(x, exact + 8);
    memset(x + exact, 0x5a, 8);
    assert_ok(outputs[i].call(x));
    assert_memory_not_equal(x + outputs[i].offset, "\0\0\0", 4);
    for (size_t at = exact; at < exact + 8; ++at) assert_int_equal(x[at], 0x5a);
    free(x);
    x = malloc(exact);
    outputs[i].init(x, exact);
    for (size_t bad = 0; bad < 16; ++bad) {
      *(size_t*)x = bad;
      assert_refused(outputs[i].call(x), "struct_size is");
    }
    free(x);
  }
  gw_error_info small;
  small.struct_size = 8;
  assert_int_equal(gw_last_error(&small), GW_E_INVALID_ARGUMENT);
}

/* Arrays use the size of their first element as their step. All elements have the same size. */
static void arrays_step_by_the_first_size(void** state) {
  (void)state;
  struct {
    gw_optimizer_rule rule;
    int64_t newer;
  } rules[2];
  for (int i = 0; i < 2; ++i) {
    gw_optimizer_rule_init(&rules[i].rule, sizeof rules[i]);
    rules[i].rule.pattern = i == 0 ? "**" : "model.norm.weight";
  }
  gw_sgd_options s;
  gw_optimizer* opt = NULL;
  gw_sgd_options_init(&s, sizeof s);
  s.rules = &rules[0].rule;
  s.rule_count = 2;
  assert_ok(gw_sgd_create(m.model, &s, &opt));
  gw_optimizer_release(opt);
  rules[1].rule.struct_size -= 8;
  assert_refused(gw_sgd_create(m.model, &s, &opt), "options.rules[1].struct_size");
}

#define OBJECT(type, call, need) \
  INPUT(type, call, need), offsetof(gw_##type, user), offsetof(gw_##type, free_user)
static const struct {
  struct {
    const char* name;
    size_t size;
    void (*init)(void*, size_t);
    gw_status (*call)(void*);
    void (*need)(void*);
  } in;
  size_t user, free_user; /* offsets */
} objects[] = {{OBJECT(allocator, allocator, need_functions)},
               {OBJECT(gang_options, gang_options, NULL)},
               {OBJECT(store_callbacks, store_callbacks, need_store)},
               {OBJECT(custom_options, custom_options, need_callbacks)},
               {OBJECT(init_options, init_options, NULL)}};

/* Sets up struct i of `size` bytes in a block of `exact + 8`, with a user whose frees are counted in
 * `freed`. */
static void put_object(size_t i, char* x, size_t size, int* freed) {
  void (*const count)(void*) = count_free;
  memset(x, 0xee, objects[i].in.size + 8);
  objects[i].in.init(x, size);
  if (objects[i].in.need != NULL) objects[i].in.need(x);
  memcpy(x + objects[i].user, &freed, sizeof freed);
  memcpy(x + objects[i].free_user, &count, sizeof count);
  *freed = 0;
}

/* The user is freed once whatever the call returns, and for every struct size that includes free_user. A
 * struct that no _init has set up may contain anything, so its free function is not called. */
static void objects_of_structs_of_every_size_are_freed_once(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof objects / sizeof *objects; ++i) {
    const size_t exact = objects[i].in.size;
    const gw_ext ext = {7, 0, NULL};
    const gw_ext* const unknown = &ext;
    char* x = malloc(exact + 8);
    int freed = 0;
    print_message("%s\n", objects[i].in.name);
    for (size_t size = 16; size <= exact + 8; size += 8) {
      const int reached = size >= objects[i].free_user + sizeof(gw_free_fn);
      put_object(i, x, size, &freed);
      memset(x + exact, 0, 8); /* a newer caller's field, which is not set */
      const gw_status status = objects[i].in.call(x);
      if (reached) assert_int_equal(status, GW_OK);
      assert_int_equal(freed, reached);
      put_object(i, x, size, &freed);
      memcpy(x + offsetof(gw_save_options, next), &unknown, sizeof unknown);
      assert_refused_as(objects[i].in.call(x), GW_E_NOT_SUPPORTED, NULL);
      assert_int_equal(freed, reached);
    }
    const size_t never_set_up[] = {0, 8, (size_t)1 << 40};
    for (size_t s = 0; s < 3; ++s) {
      put_object(i, x, exact, &freed);
      memcpy(x, &never_set_up[s], sizeof never_set_up[s]);
      assert_refused(objects[i].in.call(x), "struct_size is");
      assert_int_equal(freed, 0);
    }
    free(x);
  }
}

static int begin(void** state) {
  (void)state;
  const gw_decoder_options o = small_llama();
  fill_batch(&m.batch, 1, 0);
  gw_pipeline_options pipeline;
  gw_pipeline_options_init(&pipeline, sizeof pipeline);
  pipeline.microbatches = 1;
  gw_gang_barrier(NULL, NULL);
  m.error = gw_error_take();
  const int good =
      gw_gang_create(NULL, &m.gang) == GW_OK && gw_gangs_create(m.gang, NULL, &m.gangs) == GW_OK &&
      gw_decoder_create(&o, &m.model) == GW_OK && gw_parallelize(m.model, m.gangs, NULL) == GW_OK &&
      gw_sgd_create(m.model, NULL, &m.opt) == GW_OK &&
      gw_module_parameter(m.model, 0, &m.parameter) == GW_OK && gw_gang_barrier(m.gang, NULL) == GW_OK &&
      gw_partition_create(m.gang, &m.partition) == GW_OK &&
      gw_pipeline_create(m.gang, &pipeline, &m.pipeline) == GW_OK;
  return good ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  gw_error_release(m.error);
  gw_pipeline_release(m.pipeline);
  gw_partition_release(m.partition);
  gw_parameter_release(m.parameter);
  gw_optimizer_release(m.opt);
  gw_module_release(m.model);
  gw_gangs_release(m.gangs);
  gw_gang_release(m.gang);
  return system("rm -rf /tmp/gangway-struct-test");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inputs_of_every_size), cmocka_unit_test(a_reserved_field_that_is_set_is_refused),
      cmocka_unit_test(results_of_every_size), cmocka_unit_test(arrays_step_by_the_first_size),
      cmocka_unit_test(objects_of_structs_of_every_size_are_freed_once)};
  return cmocka_run_group_tests_name("capi_struct", tests, begin, end);
}
