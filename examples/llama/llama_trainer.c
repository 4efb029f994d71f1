/* Trains a byte-level Llama on a text, with parameters, gradients and optimizer states sharded over the ranks.
 *   gangrun -n 2 llama_trainer --text FILE [options]        (--help lists them) */
#include <errno.h>
#include <gangway/gangway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train_report.h"
#include "trainer_options.h"

/* What a run holds. */
typedef struct run {
  arguments a;
  unsigned char *bytes; /* the text */
  gw_gangs *gangs;
  gw_gang *root;
  gw_module *model;
  gw_optimizer *opt;
  int talks;         /* rank 0 */
  long first, last;  /* this rank's rows of the global batch */
  train_point *points;
} run;

static int cannot(const char *what, const char *path) {
  return fprintf(stderr, "cannot %s %s: %s\n", what, path, strerror(errno)), 1;
}

static int report(const char *what) {
  fprintf(stderr, "%s: %s\n", what, gw_last_error_text());
  return 1;
}

static unsigned char *read_file(const char *path, long *size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  *size = ftell(file);
  rewind(file);
  unsigned char *bytes = malloc((size_t)*size + 1);
  if (bytes != NULL && fread(bytes, 1, (size_t)*size, file) != (size_t)*size) {
    free(bytes);
    bytes = NULL;
  }
  fclose(file);
  return bytes;
}

/* A byte-level data set: rows of `sequence` bytes; each row's labels are the bytes that follow. */
typedef struct rows {
  const unsigned char *bytes;
  long count; /* bytes */
  int64_t *tokens, *labels;
} rows;

/* Row `index` of step `step` starts at a place that depends on those two alone, so every mesh sees the same batches. */
static void fill_row(const rows *r, long sequence, uint64_t step, uint64_t index, long place) {
  uint64_t h = (step + 1) * 0x9E3779B97F4A7C15ull + (index + 1) * 0xC2B2AE3D27D4EB4Full;
  h = (h ^ (h >> 31)) * 0xD6E8FEB86659FD93ull;
  h ^= h >> 32;
  const long start = (long)(h % (uint64_t)(r->count - sequence));
  for (long i = 0; i < sequence; ++i) {
    r->tokens[place * sequence + i] = r->bytes[start + i];
    r->labels[place * sequence + i] = r->bytes[start + i + 1];
  }
}

/* The batch of this rank's data coordinate: its part of the global rows. */
static void fill_batch(const rows *r, const arguments *a, uint64_t step, long first, long last) {
  for (long row = first; row < last; ++row) fill_row(r, a->sequence, step, (uint64_t)row, row - first);
}

/* The mesh, the model over it, its optimizer. */
static int create(run *r) {
  const arguments *a = &r->a;
  if (gw_gangs_create(NULL, &a->mesh, &r->gangs) != GW_OK) return report("gw_gangs_create");
  if (gw_decoder_create(&a->llama, &r->model) != GW_OK) return report("gw_decoder_create");
  if (gw_parallelize(r->model, r->gangs, &a->parallel) != GW_OK) return report("gw_parallelize");
  gw_adamw_options adamw;
  gw_adamw_options_init(&adamw, sizeof adamw);
  adamw.lr = a->lr;
  adamw.weight_decay = 0.1;
  adamw.beta2 = 0.95;
  adamw.schedule = GW_COSINE;
  adamw.warmup_steps = a->warmup;
  adamw.total_steps = a->steps > a->warmup ? a->steps : a->warmup + 1;
  adamw.last_lr_ratio = 0.1;
  if (gw_adamw_create(r->model, &adamw, &r->opt) != GW_OK) return report("gw_adamw_create");
  if (gw_gangs_get(r->gangs, "root", &r->root) != GW_OK) return report("gw_gangs_get");
  r->talks = gw_gang_rank(r->root) == 0;
  int32_t index = 0, count = 1;
  if (gw_gangs_data_shard(r->gangs, &index, &count) != GW_OK) return report("gw_gangs_data_shard");
  r->first = a->batch * index / count;
  r->last = a->batch * (index + 1) / count;
  return 0;
}

static void introduce(const run *r, long size) {
  size_t parameters = 0, weights = 0;
  gw_module_parameter_count(r->model, &parameters);
  for (size_t i = 0; i < parameters; ++i) {
    gw_parameter *p = NULL;
    gw_parameter_info info;
    gw_parameter_info_init(&info, sizeof info);
    gw_module_parameter(r->model, i, &p);
    gw_parameter_describe(p, &info);
    size_t n = 1;
    for (int d = 0; d < info.ndim; ++d) n *= (size_t)info.dims[d];
    weights += n;
    gw_parameter_release(p);
  }
  printf("%.2f M parameters over %d ranks, %ld bytes of text, %ld steps of %ld tokens\n", (double)weights * 1e-6,
         gw_gang_size(r->root), size, (long)r->a.steps, (long)(r->a.batch * r->a.sequence));
}

/* The mean loss of four fixed batches of the held-out text. */
static int evaluate(const run *r, const rows *test, const gw_batch *batch, double *out_loss) {
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  double sum = 0;
  for (uint64_t b = 0; b < 4; ++b) {
    fill_batch(test, &r->a, b, r->first, r->last);
    if (gw_eval_step(r->model, batch, NULL, NULL, &result) != GW_OK) return report("gw_eval_step");
    sum += result.loss;
  }
  *out_loss = sum / 4;
  return 0;
}

static int train(run *r, const rows *text, const rows *test, const gw_batch *batch) {
  const arguments *a = &r->a;
  gw_step_options step;
  gw_step_options_init(&step, sizeof step);
  step.microbatches = (int32_t)a->microbatches;
  step.max_grad_norm = 1.0;
  gw_step_result result;
  gw_step_result_init(&result, sizeof result);
  double held_out = -1;
  const double start = seconds_now();
  for (long s = 1; s <= a->steps; ++s) {
    fill_batch(text, a, (uint64_t)s, r->first, r->last);
    if (gw_train_step(r->model, r->opt, batch, &step, NULL, &result) != GW_OK) return report("gw_train_step");
    r->points[s - 1] = (train_point){s, result.loss, -1};
    if (r->talks)
      show_progress(s, a->steps, result.loss, result.tokens_per_second, result.grad_norm, seconds_now() - start);
    if (s % 50 != 0 && s != a->steps) continue;
    if (evaluate(r, test, batch, &held_out) != 0) return 1;
    r->points[s - 1].held_out = held_out;
  }
  if (r->talks) printf("held-out loss %.3f nats a byte after %.0f s\n", held_out, seconds_now() - start);
  return 0;
}

/* Trains on all but the last twentieth of the text, which is held out. */
static int train_on_text(run *r, long size) {
  const arguments *a = &r->a;
  const long held = size / 20;
  if (held <= a->sequence)
    return fprintf(stderr, "%s has %ld bytes, too few for rows of %ld\n", a->text, size, (long)a->sequence), 1;
  const size_t numbers = (size_t)(r->last - r->first) * (size_t)a->sequence;
  rows text = {r->bytes, size - held, malloc(numbers * 8 + 8), malloc(numbers * 8 + 8)};
  rows test = {r->bytes + size - held, held, text.tokens, text.labels};
  const int64_t shape[2] = {r->last - r->first, a->sequence};
  gw_view inputs, targets;
  gw_view_set(&inputs, text.tokens, shape, 2, GW_I64);
  gw_view_set(&targets, text.labels, shape, 2, GW_I64);
  gw_batch batch;
  gw_batch_init(&batch, sizeof batch);
  batch.inputs = &inputs;
  batch.input_count = 1;
  batch.targets = &targets;
  batch.target_count = 1;
  batch.shifted = 1; /* the labels above are the next bytes already */
  r->points = calloc((size_t)a->steps, sizeof *r->points);
  const int failed = train(r, &text, &test, &batch);
  free(text.tokens);
  free(text.labels);
  return failed;
}

/* Text by the model, on the terminal and in sample.txt. Over cp and pp the library generates none. */
static int write_sample(const run *r) {
  const arguments *a = &r->a;
  const char *prompt = "The hacker ";
  size_t count = 0;
  int64_t context[32], *sample = malloc((size_t)a->sample * sizeof *sample);
  for (size_t i = 0; prompt[i]; ++i) context[i] = (unsigned char)prompt[i];
  gw_generate_options g;
  gw_generate_options_init(&g, sizeof g);
  g.token_count = a->sample;
  g.temperature = 0.8;
  g.top_k = 40;
  g.seed = a->parallel.seed;
  const gw_status made =
      gw_generate(r->model, context, strlen(prompt), &g, NULL, sample, (size_t)a->sample, &count);
  if (made != GW_OK) free(sample);
  if (made == GW_E_NOT_SUPPORTED) return r->talks ? printf("no sample: %s\n", gw_last_error_text()), 0 : 0;
  if (made != GW_OK) return report("gw_generate");
  char path[4096];
  snprintf(path, sizeof path, "%s/sample.txt", a->out);
  FILE *file = r->talks ? fopen(path, "w") : NULL;
  if (r->talks) printf("sample: %s", prompt);
  if (file) fputs(prompt, file);
  for (long i = 0; r->talks && i < a->sample; ++i) {
    putchar((int)sample[i]);
    if (file) fputc((int)sample[i], file);
  }
  if (r->talks) printf("\n");
  if (file) fclose(file);
  free(sample);
  return 0;
}

static int write_results(const run *r) {
  const char *out = r->a.out;
  if (mkdir(out, 0777) != 0 && errno != EEXIST) return cannot("make", out);
  if (r->a.sample > 0 && write_sample(r) != 0) return 1;
  if (gw_module_save(r->model, out, NULL) != GW_OK) return report("gw_module_save");
  if (!r->talks) return 0;
  char path[4096];
  snprintf(path, sizeof path, "%s/loss.csv", out);
  if (write_csv(path, r->points, (size_t)r->a.steps) != 0) return cannot("write", path);
  snprintf(path, sizeof path, "%s/loss.svg", out);
  if (write_svg(path, r->points, (size_t)r->a.steps) != 0) return cannot("write", path);
  printf("wrote the losses and the model into %s\n", out);
  return 0;
}

static int end(run *r) {
  gw_optimizer_release(r->opt);
  gw_module_release(r->model);
  gw_gang_release(r->root);
  if (gw_gangs_shutdown(r->gangs, -1) != GW_OK) return report("gw_gangs_shutdown");
  gw_gangs_release(r->gangs);
  free(r->points);
  free(r->bytes);
  return 0;
}

int main(int argc, char **argv) {
  run r = {0};
  const int refused = parse_arguments(argc, argv, &r.a);
  if (refused) return refused;
  long size = 0;
  r.bytes = read_file(r.a.text, &size);
  if (r.bytes == NULL) return cannot("read", r.a.text);
  if (create(&r) != 0) return 1;
  if (r.talks) introduce(&r, size);
  if (train_on_text(&r, size) != 0 || write_results(&r) != 0) return 1;
  return end(&r);
}
