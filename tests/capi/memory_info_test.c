/* The memory of the host, and an allocator of the caller. */
#include <stdatomic.h>

#include "models.h"

static void a_hosts_memory_is_total_available_and_used(void** state) {
  (void)state;
  gw_memory_info info;
  gw_memory_info_init(&info, sizeof info);
  assert_ok(gw_host_memory(&info));
  assert_true(info.total > 0 && info.available > 0 && info.available <= info.total);
  assert_true(info.used > 0 && info.used <= info.total);
  assert_refused(gw_host_memory(NULL), "info is null");
}

/* An allocator of the caller that counts, and that has room for `most` bytes. */
typedef struct heap {
  atomic_size_t taken, given, bytes;
  size_t most;
  atomic_int wrong, releases;
} heap;
static void* heap_allocate(void* user, size_t bytes, size_t alignment) {
  heap* h = user;
  if (bytes == 0 || bytes % alignment != 0) atomic_fetch_add(&h->wrong, 1);
  if (atomic_load(&h->bytes) + bytes > h->most) return NULL;
  atomic_fetch_add(&h->bytes, bytes);
  atomic_fetch_add(&h->taken, 1);
  return aligned_alloc(alignment, bytes);
}
static void heap_free(void* user, void* data, size_t bytes) {
  heap* h = user;
  if (data == NULL || bytes == 0) atomic_fetch_add(&h->wrong, 1);
  atomic_fetch_sub(&h->bytes, bytes);
  atomic_fetch_add(&h->given, 1);
  free(data);
}
static void heap_release(void* user) { atomic_fetch_add(&((heap*)user)->releases, 1); }

static gw_allocator allocator_of(heap* h, size_t most) {
  memset(h, 0, sizeof *h);
  h->most = most;
  gw_allocator a;
  gw_allocator_init(&a, sizeof a);
  a.allocate = heap_allocate;
  a.deallocate = heap_free;
  a.user = h;
  a.free_user = heap_release;
  return a;
}

static void blocks_come_from_the_callers_allocator_and_go_back_to_it(void** state) {
  (void)state;
  heap h;
  const gw_allocator a = allocator_of(&h, (size_t)1 << 30);
  assert_ok(gw_allocator_set(&a));
  gw_module* model = materialized_llama();
  gw_optimizer* opt = NULL;
  assert_ok(gw_adamw_create(model, NULL, &opt));
  small_batch b;
  fill_batch(&b, 2, 0);
  assert_ok(gw_train_step(model, opt, &b.batch, NULL, NULL, NULL));
  assert_true(h.taken > 0 && h.bytes > 0);
  /* Another allocator serves later allocations. Blocks that exist keep theirs, and its `user`. */
  assert_ok(gw_allocator_set(NULL));
  const size_t taken = h.taken;
  gw_tensor* copy = NULL;
  assert_ok(gw_tensor_copy(&b.input, &copy));
  gw_tensor_release(copy);
  assert_ok(gw_train_step(model, opt, &b.batch, NULL, NULL, NULL));
  assert_int_equal(h.taken, taken);
  assert_int_equal(h.releases, 0);
  gw_optimizer_release(opt);
  gw_module_release(model);
  assert_int_equal(h.given, h.taken);
  assert_int_equal(h.bytes, 0);
  assert_int_equal(h.wrong, 0);
  assert_int_equal(h.releases, 1);
}

static void out_of_memory_in_the_callers_allocator_is_a_status(void** state) {
  (void)state;
  heap h;
  const gw_allocator a = allocator_of(&h, 4096);
  assert_ok(gw_allocator_set(&a));
  gw_module* model = NULL;
  const gw_decoder_options o = small_llama();
  assert_ok(gw_decoder_create(&o, &model));
  assert_refused_as(gw_module_materialize(model, NULL, 1, GW_F64), GW_E_OUT_OF_MEMORY,
                    "caller's allocator has no");
  gw_module_release(model);
  assert_ok(gw_allocator_set(NULL));
  assert_int_equal(h.given, h.taken);
  assert_int_equal(h.releases, 1);
}

static void an_allocator_without_a_function_is_refused_and_released(void** state) {
  (void)state;
  heap h;
  gw_allocator a = allocator_of(&h, 1);
  a.deallocate = NULL;
  assert_refused(gw_allocator_set(&a), "allocator.deallocate is null");
  a.allocate = NULL;
  assert_refused(gw_allocator_set(&a), "allocator.allocate is null");
  assert_int_equal(h.releases, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hosts_memory_is_total_available_and_used),
      cmocka_unit_test(blocks_come_from_the_callers_allocator_and_go_back_to_it),
      cmocka_unit_test(out_of_memory_in_the_callers_allocator_is_a_status),
      cmocka_unit_test(an_allocator_without_a_function_is_refused_and_released)};
  return cmocka_run_group_tests_name("capi_memory_info", tests, NULL, NULL);
}
