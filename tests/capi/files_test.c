#include "models.h"

#include <errno.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

static void saves_and_loads(rank* me) {
  const gw_decoder_options o = small_llama();
  gw_gangs* gangs = NULL;
  gw_module *a = NULL, *b = NULL;
  gw_parallel_options p;
  gw_parallel_options_init(&p, sizeof p);
  p.seed = 5;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  EXPECT_OK(gw_decoder_create(&o, &a));
  EXPECT_OK(gw_parallelize(a, gangs, &p));
  gw_save_options so;
  gw_save_options_init(&so, sizeof so);
  EXPECT_REFUSED(gw_module_save(a, me->index == me->size - 1 ? NULL : me->user, &so), "folder is null");
  so.dtype = GW_I32;
  EXPECT_REFUSED(gw_module_save(a, me->user, &so), "dtype = i32 is not floating");
  so.dtype = GW_DTYPE_NONE;
  so.max_file_bytes = -1;
  EXPECT_REFUSED(gw_module_save(a, me->user, &so), "max_file_bytes is -1");
  so.max_file_bytes = 2000; /* several files */
  EXPECT_OK(gw_module_save(a, me->user, &so));
  EXPECT_OK(gw_decoder_create(&o, &b));
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
    float saved[16 * 11], loaded[16 * 11];
    take(saved, &v, NULL);
    take(loaded, &w, NULL);
    EXPECT(memcmp(saved, loaded, bytes_of(&v)) == 0);
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

/* Cuts the first file of weights, whose name begins with `stem`. Loading the folder names it then. */
static void cut_file_is_corrupt(const char* folder, const char* stem) {
  char pattern[120];
  glob_t files;
  snprintf(pattern, sizeof pattern, "%s/%s*", folder, stem);
  assert_int_equal(glob(pattern, 0, NULL, &files), 0);
  assert_int_equal(truncate(files.gl_pathv[0], 100), 0);
  globfree(&files);
  gw_module* model = materialized_llama();
  assert_refused_as(gw_module_load(model, folder, NULL), GW_E_CORRUPT, stem);
  gw_module_release(model);
}

/* In several files with an index, and then again in one file, which takes their place. */
static void what_is_saved_is_loaded(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 3; ++n) {
    char folder[] = "/tmp/gangway-model-XXXXXX", file[80], command[80];
    assert_non_null(mkdtemp(folder));
    run_ranks(n, saves_and_loads, folder);
    struct stat found;
    snprintf(file, sizeof file, "%s/model.safetensors.index.json", folder);
    assert_int_equal(stat(file, &found), 0);
    snprintf(file, sizeof file, "%s/config.json", folder);
    assert_int_equal(stat(file, &found), 0);
    cut_file_is_corrupt(folder, "model-00001-of-");
    gw_module* model = materialized_llama();
    assert_ok(gw_module_save(model, folder, NULL));
    gw_module_release(model);
    snprintf(file, sizeof file, "%s/model.safetensors.index.json", folder);
    assert_int_equal(stat(file, &found), -1);
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    assert_int_equal(stat(file, &found), 0);
    cut_file_is_corrupt(folder, "model.safetensors");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
  }
}

/* Options with a value other than the default in each field. */
static gw_decoder_options unusual(void) {
  gw_decoder_options o = small_llama();
  o.kv_heads = 2;
  o.head_dim = 6;
  o.ffn = 40;
  o.max_positions = 99;
  o.eps = 1e-3;
  o.rope_theta = 777;
  o.rope_factor = 3;
  o.rope_low_frequency_factor = 1.5;
  o.rope_high_frequency_factor = 5;
  o.rope_original_positions = 64;
  o.initializer_range = 0.5;
  o.qkv_bias = o.out_bias = o.mlp_bias = o.tied = 1;
  return o;
}

static void a_folder_gives_the_options_it_was_saved_with(void** state) {
  (void)state;
  char folder[] = "/tmp/gangway-model-XXXXXX", command[80];
  assert_non_null(mkdtemp(folder));
  gw_decoder_options o = unusual(), found;
  gw_module *model = NULL, *again = NULL;
  assert_ok(gw_decoder_create(&o, &model));
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F32));
  assert_ok(gw_module_save(model, folder, NULL));
  gw_decoder_options_init(&found, sizeof found);
  assert_ok(gw_decoder_options_from_folder(folder, &found));
  assert_memory_equal(&found, &o, sizeof o);
  assert_ok(gw_model_from_folder(NULL, folder, NULL, &again));
  gw_module_release(again);

  /* The same names and shapes, but another function. */
  gw_load_options load;
  gw_load_options_init(&load, sizeof load);
  gw_module_release(model);
  o.rope_theta = 778;
  assert_ok(gw_decoder_create(&o, &model));
  assert_ok(gw_module_materialize(model, NULL, 1, GW_F32));
  assert_refused(gw_module_load(model, folder, &load), "rope_theta = 777.0, but the model has 778.0");
  load.ignore_config = 1;
  assert_ok(gw_module_load(model, folder, &load));
  gw_module_release(model);

  /* A refusal leaves the options unchanged and names the file. */
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
  memset(&found.vocab, 7, sizeof found.vocab);
  const gw_decoder_options before = found;
  assert_refused_as(gw_decoder_options_from_folder(folder, &found), GW_E_IO, "No such file");
  assert_memory_equal(&found, &before, sizeof found);
  const gw_error_info info = last_error();
  assert_int_equal(info.system_error, ENOENT);
  snprintf(command, sizeof command, "%s/config.json", folder);
  assert_string_equal(info.path, command);
  again = (gw_module*)&load;
  assert_refused_as(gw_model_from_folder(NULL, folder, NULL, &again), GW_E_IO, "config.json");
  assert_null(again);
}

static void makes_a_model(rank* me) {
  gw_gangs* gangs = NULL;
  gw_module *model = NULL, *none = NULL;
  EXPECT_OK(gw_gangs_create(me->gang, NULL, &gangs));
  /* All ranks get the refusal of one rank. */
  EXPECT_STATUS(gw_model_from_folder(gangs, me->index == me->size - 1 ? "/nowhere" : me->user, NULL, &none),
                GW_E_IO, "/nowhere/config.json");
  EXPECT(none == NULL && strcmp(last_error().path, "/nowhere/config.json") == 0);
  EXPECT_OK(gw_model_from_folder(gangs, me->user, NULL, &model));
  gw_module_release(model);
  EXPECT_OK(gw_gangs_shutdown(gangs, -1));
  gw_gangs_release(gangs);
}

static void a_folder_is_a_model_on_any_number_of_ranks(void** state) {
  (void)state;
  char folder[] = "/tmp/gangway-model-XXXXXX", text[200];
  assert_non_null(mkdtemp(folder));
  gw_module* model = materialized_llama();
  assert_ok(gw_module_save(model, folder, NULL));
  gw_module_release(model);
  for (int32_t n = 1; n <= 3; ++n) run_ranks(n, makes_a_model, folder);

  /* A config.json that describes more than the files hold is refused before memory is taken. */
  snprintf(text, sizeof text,
           "sed -i 's/\"vocab_size\": [0-9]*/\"vocab_size\": 1000000/; s/\"hidden_size\": "
           "[0-9]*/\"hidden_size\": "
           "1000000/' %s/config.json",
           folder);
  assert_int_equal(system(text), 0);
  assert_refused(gw_model_from_folder(NULL, folder, NULL, &model), "model.embed_tokens.weight has shape");
  snprintf(text, sizeof text, "rm -r %s", folder);
  assert_int_equal(system(text), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(what_is_saved_is_loaded),
                                     test_on_device(a_folder_gives_the_options_it_was_saved_with),
                                     test_on_device(a_folder_is_a_model_on_any_number_of_ranks)};
  return cmocka_run_group_tests_name("capi_files", tests, NULL, NULL);
}
