/* Shapes and counts that no address space can hold are refused at once, with their numbers. */
#include <limits.h>
#include <time.h>

#include "models.h"

static const int64_t kHuge = (int64_t)1 << 31;

static gw_status llama(void (*change)(gw_decoder_options*)) {
  gw_decoder_options o = small_llama();
  gw_module* model = NULL;
  change(&o);
  return gw_decoder_create(&o, &model);
}
#define HUGE(name, field, value) \
  static void name(gw_decoder_options* o) { o->field = (value); }
HUGE(huge_vocab, vocab, kHuge)
HUGE(huge_dim, dim, kHuge)
HUGE(overflowing_dim, dim, INT64_MAX)
HUGE(huge_layers, layers, kHuge)
HUGE(huge_heads, heads, kHuge)
HUGE(overflowing_heads, heads, INT64_MAX)
HUGE(huge_kv_heads, kv_heads, kHuge)
HUGE(huge_head_dim, head_dim, kHuge)
HUGE(overflowing_head_dim, head_dim, INT64_MAX)
HUGE(huge_ffn, ffn, kHuge)
HUGE(huge_positions, max_positions, kHuge)
static void huge_products(gw_decoder_options* o) {
  o->heads = o->kv_heads = INT32_MAX;
  o->head_dim = INT32_MAX - 1;
}

static void of_a_llama(void** state) {
  (void)state;
  assert_refused(llama(huge_vocab), "vocab is 2147483648; the most is 2147483647");
  assert_refused(llama(huge_dim), "dim is 2147483648");
  assert_refused(llama(overflowing_dim), "dim is 9223372036854775807");
  assert_refused(llama(huge_layers), "layers is 2147483648");
  assert_refused(llama(huge_heads), "heads is 2147483648");
  assert_refused(llama(overflowing_heads), "heads is 9223372036854775807");
  assert_refused(llama(huge_kv_heads), "kv_heads is 2147483648");
  assert_refused(llama(huge_head_dim), "head_dim is 2147483648");
  assert_refused(llama(overflowing_head_dim), "head_dim is 9223372036854775807");
  assert_refused(llama(huge_ffn), "ffn is 2147483648");
  assert_refused(llama(huge_positions), "max_positions is 2147483648");
  assert_refused(llama(huge_products), "more than 2^58 elements");
}

static void of_layers(void** state) {
  (void)state;
  gw_module* model = NULL;
  gw_attention_options a;
  assert_refused(gw_linear_create(kHuge, kHuge, 0, &model),
                 "[2147483648, 2147483648] has more than 2^58 elements");
  assert_refused(gw_linear_create(INT64_MAX, INT64_MAX, 1, &model), "more than 2^58 elements");
  assert_refused(gw_embedding_create(kHuge, kHuge, &model), "more than 2^58 elements");
  assert_refused(gw_mlp_create(kHuge, kHuge, 0, &model), "more than 2^58 elements");
  assert_refused(gw_rmsnorm_create(INT64_MAX, 1e-5, &model), "more than 2^58 elements");
  gw_attention_options_init(&a, sizeof a);
  a.dim = kHuge;
  a.heads = 2;
  assert_refused(gw_attention_create(&a, &model), "dim is 2147483648");
  assert_null(model);
}

/* A shape that a description may have, but that no host has memory for. */
static void of_a_models_memory(void** state) {
  (void)state;
  gw_module* model = NULL;
  assert_ok(gw_linear_create((int64_t)1 << 27, kHuge, 0, &model));
  assert_refused_as(gw_module_materialize(model, NULL, 1, GW_F32), GW_E_OUT_OF_MEMORY,
                    "1152921504606846976 bytes");
  gw_module_release(model);
}

static gw_status group_of(int count, int64_t rows, int64_t columns) {
  gw_parameter_options p[16];
  static const char* const names[16] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                        "i", "j", "k", "l", "m", "n", "o", "p"};
  gw_shard_group* group = NULL;
  for (int i = 0; i < count; ++i) {
    gw_parameter_options_init(&p[i], sizeof p[i]);
    p[i].name = names[i];
    p[i].ndim = 2;
    p[i].dims[0] = rows;
    p[i].dims[1] = columns;
  }
  return gw_shard_group_create(NULL, "g", p, (size_t)count, NULL, 1, &group);
}

static void of_shard_groups(void** state) {
  (void)state;
  assert_refused(group_of(1, kHuge, kHuge), "more than 2^58 elements");
  assert_refused(group_of(1, INT64_MAX, 2), "more than 2^58 elements");
  assert_refused_as(group_of(1, kHuge, 1 << 20), GW_E_OUT_OF_MEMORY, "9007199254740992 bytes");
  /* Sixteen times 2^60 bytes are 2^64. */
  assert_refused_as(group_of(16, kHuge, 1 << 27), GW_E_OUT_OF_MEMORY, "which no address space holds");
}

static void of_tensors(void** state) {
  (void)state;
  float x[4] = {0};
  const int64_t huge[2] = {(int64_t)1 << 31, (int64_t)1 << 31}, wraps[2] = {INT64_MAX, 4};
  gw_view view;
  gw_tensor* tensor = NULL;
  assert_ok(gw_view_set(&view, x, huge, 2, GW_F32));
  assert_refused(gw_tensor_copy(&view, &tensor), "more than 2^58 elements");
  assert_ok(gw_view_set(&view, x, wraps, 2, GW_F32));
  assert_refused(gw_tensor_copy(&view, &tensor), "more than 2^58 elements");
  assert_null(tensor);
}

static void counts_of_gangs(rank* me) {
  gw_bytes* bytes = NULL;
  float x[4] = {0}, y[8];
  const size_t most = SIZE_MAX, half = SIZE_MAX / 2, quarter = SIZE_MAX / 8;
  size_t sizes[2];
  EXPECT_REFUSED(gw_gang_broadcast_bytes(me->gang, x, most, me->index, &bytes),
                 "size is 18446744073709551615 bytes");
  EXPECT_REFUSED(gw_gang_all_gather_bytes(me->gang, x, half + 1, sizes, &bytes),
                 "size is 9223372036854775808 bytes");
  EXPECT_REFUSED(gw_gang_all_reduce(me->gang, x, x, most, GW_F32, GW_SUM, NULL), "18446744073709551615 f32");
  EXPECT_REFUSED(gw_gang_all_gather(me->gang, x, y, quarter, GW_F32, NULL),
                 "2305843009213693951 f32 times 2");
  EXPECT_REFUSED(gw_gang_broadcast(me->gang, x, x, half, GW_F32, 0, NULL),
                 "more bytes than an address holds");
  EXPECT_OK(gw_gang_barrier(me->gang, NULL));
}

static void of_gangs(void** state) {
  (void)state;
  run_ranks(2, counts_of_gangs, NULL);
}

static void take_no_time(void** state) {
  (void)state;
  const clock_t start = clock();
  of_a_llama(state);
  of_layers(state);
  of_a_models_memory(state);
  of_shard_groups(state);
  assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(of_a_llama),         cmocka_unit_test(of_layers),
                                     cmocka_unit_test(of_a_models_memory), cmocka_unit_test(of_shard_groups),
                                     cmocka_unit_test(of_tensors),         cmocka_unit_test(of_gangs),
                                     cmocka_unit_test(take_no_time)};
  return cmocka_run_group_tests_name("capi_huge_shapes", tests, NULL, NULL);
}
