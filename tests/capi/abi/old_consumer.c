/* A program of ABI level 0.0, kept as it was: it has its own declarations and never reads the headers, and
 * its structs and function table are shorter than today's. It runs on every library of the same major level.
 * Its structs end where its memory ends, so a library that reads further is caught. consumer.py keeps it as a
 * binary. The build also compiles this source, for the sanitizers.
 *
 * From 1.0 on nothing here may change. Until then a reviewed change of level 0 is followed here. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "old_consumer.h"

typedef struct gw_module gw_module;
typedef struct gw_optimizer gw_optimizer;

typedef struct { /* today's struct has more fields for the environment */
  size_t struct_size;
  const void* next;
  const char *device, *engine, *name;
  int64_t timeout_ms;
} gw_gang_options;
typedef struct {
  size_t struct_size;
  const void* next;
  int32_t pp, dp_replicate;
} gw_mesh_options;
typedef struct {
  size_t struct_size;
  const void* next;
  const char* family;
  int64_t vocab, dim, layers, heads;
} gw_decoder_options;
typedef struct {
  size_t struct_size;
  const void* next;
  double lr, momentum;
} gw_sgd_options;
typedef struct {
  size_t struct_size;
  const void* next;
  const gw_view* inputs;
  size_t input_count;
  const gw_view* targets;
  size_t target_count;
} gw_batch;
typedef struct {
  size_t struct_size;
  const void* next;
  double loss;
} gw_step_result;

typedef struct { /* the beginning of the table */
  size_t struct_size;
  int32_t abi_major, abi_minor;
  void (*error_info_init)(gw_error_info*, size_t);
  gw_status (*last_error)(gw_error_info*);
  void* (*error_take)(void);
  gw_status (*error_describe)(const void*, gw_error_info*);
  void (*error_release)(void*);
  const char* (*status_name)(gw_status);
  const char* (*dtype_name)(int32_t);
  size_t (*dtype_bytes)(int32_t);
  void (*version)(int32_t*, int32_t*, int32_t*);
  void (*abi_version)(int32_t*, int32_t*);
  void (*abi_range)(int32_t*, int32_t*);
} gw_api;

const gw_api* gw_get_api(int32_t);
void gw_abi_range(int32_t*, int32_t*);
const char* gw_status_name(gw_status);
void gw_gang_options_init(gw_gang_options*, size_t);
gw_status gw_gang_create(const gw_gang_options*, gw_gang**);
gw_status gw_gang_all_reduce(gw_gang*, const void*, void*, size_t, int32_t, int32_t, void*);
gw_status gw_gang_barrier(gw_gang*, void*);
void gw_gang_release(gw_gang*);
void gw_mesh_options_init(gw_mesh_options*, size_t);
gw_status gw_gangs_create(gw_gang*, const gw_mesh_options*, gw_gangs**);
void gw_gangs_release(gw_gangs*);
void gw_decoder_options_init(gw_decoder_options*, size_t);
gw_status gw_decoder_create(const gw_decoder_options*, gw_module**);
gw_status gw_parallelize(gw_module*, gw_gangs*, const void*);
void gw_module_release(gw_module*);
void gw_sgd_options_init(gw_sgd_options*, size_t);
gw_status gw_sgd_create(gw_module*, const gw_sgd_options*, gw_optimizer**);
void gw_optimizer_release(gw_optimizer*);
void gw_batch_init(gw_batch*, size_t);
void gw_step_result_init(gw_step_result*, size_t);
gw_status gw_train_step(gw_module*, gw_optimizer*, const gw_batch*, const void*, void*, gw_step_result*);

static int trains(gw_gang* gang) {
  gw_gangs* gangs = NULL;
  gw_module* model = NULL;
  gw_optimizer* opt = NULL;
  SET_UP(gw_mesh_options, mesh);
  SET_UP(gw_decoder_options, llama);
  SET_UP(gw_sgd_options, sgd);
  SET_UP(gw_batch, batch);
  SET_UP(gw_step_result, result);
  llama->vocab = 11;
  llama->dim = 16;
  llama->layers = 1;
  llama->heads = 2;
  sgd->lr = 0.5;
  CHECK(gw_gangs_create(gang, mesh, &gangs) == GW_OK);
  CHECK(gw_decoder_create(llama, &model) == GW_OK);
  CHECK(gw_parallelize(model, gangs, NULL) == GW_OK);
  CHECK(gw_sgd_create(model, sgd, &opt) == GW_OK);
  int64_t tokens[8] = {1, 2, 3, 4, 1, 2, 3, 4};
  const int64_t shape[2] = {2, 4};
  const gw_view view = {tokens, 1, 0, 2, GW_I64, shape, NULL, 0};
  batch->inputs = &view;
  batch->input_count = 1;
  CHECK(gw_train_step(model, opt, batch, NULL, NULL, result) == GW_OK);
  const double first = result->loss;
  for (int i = 0; i < 5; ++i) CHECK(gw_train_step(model, opt, batch, NULL, NULL, result) == GW_OK);
  CHECK(first > 1 && result->loss > 0 && result->loss < first);
  CHECK(result->struct_size == sizeof *result);
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_gangs_release(gangs);
  return 0;
}

/* The opposite case: a program of a later level on this library. */
static int newer_fields(void) {
  struct {
    gw_decoder_options known;
    int64_t of_another_level[64];
  } options;
  gw_module* model = NULL;
  gw_decoder_options_init(&options.known, sizeof options);
  CHECK(gw_decoder_create(&options.known, &model) == GW_OK);
  gw_module_release(model);
  options.of_another_level[63] = 1;
  CHECK(gw_decoder_create(&options.known, &model) == GW_E_NOT_SUPPORTED);
  CHECK(strstr(message(), "sets a field at byte") != NULL);
  return 0;
}

/* The table's functions when this program was made, in their order. */
static const char* const names[] = {
#include "old_table.inc"
};

static int table_by_position(const void* api) {
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    void *own = dlsym(RTLD_DEFAULT, names[i]), *listed = NULL;
    memcpy(&listed, (const char*)api + 16 + i * sizeof listed, sizeof listed);
    if (own == NULL || own != listed)
      return fprintf(stderr, "entry %zu of the table is not %s\n", i, names[i]), 1;
  }
  return 0;
}

static int table(void) {
  int32_t lowest = -1, highest = -1;
  gw_abi_range(&lowest, &highest);
  CHECK(lowest == 0 && highest >= 0);
  const gw_api* api = gw_get_api(0);
  CHECK(api != NULL && api->struct_size >= sizeof *api && api->abi_major == 0);
  CHECK(gw_get_api(highest + 1) == NULL && gw_get_api(-1) == NULL);
  CHECK(api->struct_size >= 16 + sizeof names / sizeof *names * sizeof(void*) && table_by_position(api) == 0);
  CHECK(strcmp(api->status_name(GW_E_INVALID_ARGUMENT), "INVALID_ARGUMENT") == 0);
  CHECK(api->dtype_bytes(GW_F64) == 8);
  int32_t major = -1;
  api->abi_version(&major, NULL);
  CHECK(major == api->abi_major);
  return 0;
}

int main(void) {
  gw_gang* gang = NULL;
  SET_UP(gw_gang_options, options);
  options->name = "old";
  CHECK(gw_gang_create(options, &gang) == GW_OK);
  double x = 2, y = 0;
  CHECK(gw_gang_all_reduce(gang, &x, &y, 1, GW_F64, GW_SUM, NULL) == GW_OK && y == 2);
  CHECK(gw_gang_barrier(NULL, NULL) == GW_E_INVALID_ARGUMENT && message()[0] != '\0');
  if (trains(gang) != 0 || newer_fields() != 0 || table() != 0 || parts(gang) != 0) return 1;
  gw_gang_release(gang);
  puts("a program of level 0.0 runs");
  return 0;
}
