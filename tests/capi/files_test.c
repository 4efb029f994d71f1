#include "models.h"

#include <sys/stat.h>
#include <unistd.h>

static void saves_and_loads(rank* me) {
  const gw_llama_options o = small_llama();
  gw_gangs* gangs = NULL;
  gw_module *a = NULL, *b = NULL;
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.seed = 5;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_llama_create(&o, &a));
  EXPECT_OK(gw_parallelize(a, gangs, &p));
  gw_save_options so;
  gw_save_options_init(&so, sizeof so);
  EXPECT_REFUSED(gw_module_save(a, me->index == me->size - 1 ? NULL : me->user, &so), "folder is null");
  so.dtype = GW_I32;
  EXPECT_REFUSED(gw_module_save(a, me->user, &so), "i32");
  so.dtype = GW_DTYPE_NONE;
  EXPECT_OK(gw_module_save(a, me->user, &so));
  EXPECT_OK(gw_llama_create(&o, &b));
  p.seed = 6;
  EXPECT_OK(gw_parallelize(b, gangs, &p));
  gw_load_options lo;
  gw_load_options_init(&lo, sizeof lo);
  EXPECT_REFUSED(gw_module_load(b, me->index == me->size - 1 ? NULL : me->user, &lo), "path is null");
  EXPECT_OK(gw_module_load(b, me->user, &lo));
  size_t count = 0;
  EXPECT_OK(gw_module_parameter_count(a, &count));
  for (size_t i = 0; i < count; ++i) {
    gw_parameter *from = NULL, *to = NULL;
    gw_tensor *x = NULL, *y = NULL;
    gw_view v, w;
    EXPECT_OK(gw_module_parameter(a, i, &from));
    EXPECT_OK(gw_module_parameter(b, i, &to));
    EXPECT_OK(gw_parameter_gather(from, NULL, &x));
    EXPECT_OK(gw_parameter_gather(to, NULL, &y));
    EXPECT_OK(gw_tensor_view(x, &v));
    EXPECT_OK(gw_tensor_view(y, &w));
    size_t bytes = gw_dtype_bytes(v.dtype);
    for (int32_t d = 0; d < v.ndim; ++d) bytes *= (size_t)v.shape[d];
    EXPECT(memcmp(v.data, w.data, bytes) == 0);
    gw_tensor_release(x);
    gw_tensor_release(y);
    gw_parameter_release(from);
    gw_parameter_release(to);
  }
  gw_module_release(a);
  gw_module_release(b);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void what_is_saved_is_loaded(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) {
    char folder[] = "/tmp/gangway-model-XXXXXX", file[80], command[80];
    assert_non_null(mkdtemp(folder));
    run_ranks(n, saves_and_loads, folder);
    struct stat found;
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    assert_int_equal(stat(file, &found), 0);
    snprintf(file, sizeof file, "%s/config.json", folder);
    assert_int_equal(stat(file, &found), 0);
    /* A file that is cut off. */
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    assert_int_equal(truncate(file, 100), 0);
    gw_module* model = materialized_llama();
    assert_refused_as(gw_module_load(model, folder, NULL), GW_E_CORRUPT, "model.safetensors");
    gw_module_release(model);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_saved_is_loaded)};
  return cmocka_run_group_tests_name("capi_files", tests, NULL, NULL);
}
