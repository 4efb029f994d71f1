/* Every sized struct that a call reads, with struct_size 0, too small, exact, with 8 more bytes of zeros, and
 * with 8 more bytes of which one is set. The calls read or refuse the struct. */
#include "struct_calls.h"

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
  FILE* tokens = fopen(token_file, "wb");
  if (tokens == NULL || fputs("tokens", tokens) < 0 || fclose(tokens) != 0) return -1;
  const int good =
      gw_gang_create(NULL, &m.gang) == GW_OK && gw_gangs_create(m.gang, NULL, &m.gangs) == GW_OK &&
      gw_decoder_create(&o, &m.model) == GW_OK && gw_parallelize(m.model, m.gangs, NULL) == GW_OK &&
      gw_sgd_create(m.model, NULL, &m.opt) == GW_OK && gw_partition_create(m.gang, &m.partition) == GW_OK &&
      gw_metrics_create(m.model, NULL, &m.metrics) == GW_OK &&
      gw_checkpoints_create(NULL, "/tmp/gangway-struct-test/run", NULL, &m.checkpoints) == GW_OK;
  return good ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  gw_checkpoints_release(m.checkpoints);
  gw_metrics_release(m.metrics);
  gw_partition_release(m.partition);
  gw_optimizer_release(m.opt);
  gw_module_release(m.model);
  gw_gangs_release(m.gangs);
  gw_gang_release(m.gang);
  return system("rm -rf /tmp/gangway-struct-test /tmp/gangway-struct-test.u8");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(inputs_of_every_size),
                                     cmocka_unit_test(a_reserved_field_that_is_set_is_refused),
                                     cmocka_unit_test(arrays_step_by_the_first_size),
                                     cmocka_unit_test(objects_of_structs_of_every_size_are_freed_once)};
  return cmocka_run_group_tests_name("capi_struct", tests, begin, end);
}
