/* two_copies LIBRARY COPY: loads two copies of the library into one process that links neither. Neither may
 * use the other. two_copies_test.py runs it, also with a preloaded library that defines every name of the
 * copies as a trap. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gangway/gangway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                   \
  do {                                                                 \
    if (!(holds)) return printf("line %d: %s\n", __LINE__, #holds), 1; \
  } while (0)

static const gw_api* table_of(const char* path, int flags, void** out_base) {
  void* library = dlopen(path, RTLD_NOW | flags);
  if (library == NULL) printf("%s\n", dlerror());
  if (library == NULL) return NULL;
  const gw_api* (*get_api)(int32_t);
  void* symbol = dlsym(library, "gw_get_api");
  memcpy(&get_api, &symbol, sizeof get_api);
  Dl_info info;
  *out_base = dladdr(symbol, &info) != 0 ? info.dli_fbase : NULL;
  return get_api(0);
}

/* Returns the number of entries in a table that do not belong to the library that gave it. */
static int strangers(const gw_api* api, const void* base) {
  int found = 0;
  const size_t first = offsetof(gw_api, error_info_init);
  for (size_t at = first; at < api->struct_size; at += sizeof(void*)) {
    void* entry;
    Dl_info info;
    memcpy(&entry, (const char*)api + at, sizeof entry);
    if (dladdr(entry, &info) != 0 && info.dli_fbase == base) continue;
    printf("entry %zu of the table is %s of %s\n", (at - first) / sizeof(void*), info.dli_sname,
           info.dli_fname);
    ++found;
  }
  return found;
}

/* Blocks taken from the allocator that one copy was given. */
static int blocks;
static void* take(void* user, size_t bytes, size_t alignment) {
  (void)user, ++blocks;
  return aligned_alloc(alignment, bytes);
}
static void give(void* user, void* data, size_t bytes) { (void)user, (void)bytes, free(data); }

static int trains(const gw_api* api) {
  gw_gang* gang = NULL;
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  gw_decoder_options l;
  gw_batch batch;
  int64_t tokens[4] = {1, 2, 3, 4}, shape[2] = {1, 4};
  const gw_view view = {tokens, GW_DEVICE_CPU, 0, 2, GW_I64, shape, NULL, 0};
  api->decoder_options_init(&l, sizeof l);
  l.vocab = 8, l.dim = 16, l.layers = 1, l.heads = 2;
  api->batch_init(&batch, sizeof batch);
  batch.inputs = &view;
  batch.input_count = 1;
  CHECK(api->gang_create(NULL, &gang) == GW_OK && api->gangs_create(gang, NULL, &gangs) == GW_OK);
  CHECK(api->decoder_create(&l, &model) == GW_OK && api->parallelize(model, gangs, NULL) == GW_OK);
  CHECK(api->sgd_create(model, NULL, &opt) == GW_OK);
  CHECK(api->train_step(model, opt, &batch, NULL, NULL, NULL) == GW_OK);
  api->optimizer_release(opt);
  api->module_release(model);
  api->gangs_release(gangs);
  api->gang_release(gang);
  return 0;
}

/* A copy's errors and settings are its own. */
static int keep_apart(const gw_api* one, const gw_api* other) {
  gw_error_info info;
  one->error_info_init(&info, sizeof info);
  CHECK(one->gang_barrier(NULL, NULL) == GW_E_INVALID_ARGUMENT); /* thrown and caught inside the library */
  CHECK(other->last_error(&info) == GW_OK && info.code == GW_OK);
  CHECK(one->last_error(&info) == GW_OK && info.code == GW_E_INVALID_ARGUMENT);
  gw_allocator allocator;
  one->allocator_init(&allocator, sizeof allocator);
  allocator.allocate = take;
  allocator.deallocate = give;
  CHECK(one->allocator_set(&allocator) == GW_OK);
  blocks = 0;
  CHECK(trains(other) == 0 && blocks == 0);
  CHECK(trains(one) == 0 && blocks > 0);
  CHECK(one->allocator_set(NULL) == GW_OK);
  return 0;
}

int main(int argc, char** argv) {
  void *first_base = NULL, *second_base = NULL;
  CHECK(argc == 3);
  /* Its names come before the other copy's own. */
  const gw_api* first = table_of(argv[1], RTLD_GLOBAL, &first_base);
  const gw_api* second = table_of(argv[2], RTLD_LOCAL, &second_base);
  CHECK(first != NULL && second != NULL && first != second && first_base != second_base);
  CHECK(strangers(first, first_base) + strangers(second, second_base) == 0);
  CHECK(keep_apart(first, second) == 0 && keep_apart(second, first) == 0);
  puts("each copy keeps to itself");
  return 0;
}
