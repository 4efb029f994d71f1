#include "trainer_options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const usage =
    "usage: llama_trainer --text FILE [--out FOLDER] [--steps N] [--batch ROWS] [--sequence N] [--lr X]\n"
    "  [--dim N] [--layers N] [--heads N] [--kv-heads N] [--ffn N] [--microbatches N] [--sample BYTES] [--seed N]\n"
    "  [--dp-replicate N] [--dp-shard N] [--tp N] [--cp N] [--pp N]\n"
    "  [--strategy full|grad|none] [--precision f32|bf16|f16] [--recompute none|selective|full]\n"
    "  [--sequence-parallel off|on] [--loss-parallel off|on] [--context ring|all-gather|all-to-all] [--schedule NAME]\n"
    "--batch is of all ranks together; --out gets loss.csv, loss.svg, the model, and sample.txt (not over cp and pp).\n";

/* An option and its field. Ranges are those of the field and of this program; what a model or a mesh can be is for the
 * library to say, on every rank. */
typedef struct number {
  const char *name;
  size_t field;
  int64_t least, most;
} number;

static const number numbers[] = { /* int64_t */
    {"--steps", offsetof(arguments, steps), 1, INT32_MAX},
    {"--batch", offsetof(arguments, batch), 1, INT32_MAX},
    {"--sequence", offsetof(arguments, sequence), 1, INT32_MAX},
    {"--microbatches", offsetof(arguments, microbatches), 1, INT32_MAX},
    {"--sample", offsetof(arguments, sample), 0, INT32_MAX},
    {"--dim", offsetof(arguments, llama.dim), 1, INT32_MAX},
    {"--layers", offsetof(arguments, llama.layers), 1, INT32_MAX},
    {"--heads", offsetof(arguments, llama.heads), 1, INT32_MAX},
    {"--kv-heads", offsetof(arguments, llama.kv_heads), 1, INT32_MAX},
    {"--ffn", offsetof(arguments, llama.ffn), 1, INT32_MAX},
    {"--seed", offsetof(arguments, parallel.seed), 0, INT64_MAX}, /* uint64_t */
};
static const number degrees[] = { /* int32_t; -1: what the others leave */
    {"--dp-replicate", offsetof(arguments, mesh.dp_replicate), -1, INT32_MAX},
    {"--dp-shard", offsetof(arguments, mesh.dp_shard), -1, INT32_MAX},
    {"--tp", offsetof(arguments, mesh.tp), -1, INT32_MAX},
    {"--cp", offsetof(arguments, mesh.cp), -1, INT32_MAX},
    {"--pp", offsetof(arguments, mesh.pp), -1, INT32_MAX},
};

typedef struct choice {
  const char *name;
  size_t field; /* int32_t */
  const char *words[3];
  int32_t values[3];
} choice;

static const choice choices[] = {
    {"--strategy", offsetof(arguments, shard.strategy), {"full", "grad", "none"},
     {GW_FULL_SHARD, GW_SHARD_GRAD_OP, GW_NO_SHARD}},
    {"--precision", offsetof(arguments, shard.param_dtype), {"f32", "bf16", "f16"},
     {GW_DTYPE_NONE, GW_BF16, GW_F16}},
    {"--recompute", offsetof(arguments, parallel.recompute), {"none", "selective", "full"},
     {GW_RECOMPUTE_NONE, GW_RECOMPUTE_SELECTIVE, GW_RECOMPUTE_FULL}},
    {"--sequence-parallel", offsetof(arguments, tensor.sequence_parallel), {"off", "on"}, {0, 1}},
    {"--loss-parallel", offsetof(arguments, tensor.loss_parallel), {"off", "on"}, {0, 1}},
    {"--context", offsetof(arguments, parallel.context_method), {"ring", "all-gather", "all-to-all"},
     {GW_CONTEXT_RING, GW_CONTEXT_ALL_GATHER, GW_CONTEXT_ALL_TO_ALL}},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const number *find_number(const number *list, size_t count, const char *name) {
  for (size_t i = 0; i < count; ++i)
    if (strcmp(list[i].name, name) == 0) return &list[i];
  return NULL;
}

static int read_number(const number *option, const char *value, int64_t *out) {
  char *end = NULL;
  errno = 0;
  const long long n = strtoll(value, &end, 10);
  if (end == value || *end != '\0')
    return fprintf(stderr, "%s takes a whole number, not \"%s\"\n", option->name, value), 2;
  if (errno != 0 || n < option->least || n > option->most)
    return fprintf(stderr, "%s takes a number from %lld to %lld, not %s\n", option->name, (long long)option->least,
                   (long long)option->most, value), 2;
  *out = n;
  return 0;
}

static int read_real(const char *name, const char *value, double *out) {
  char *end = NULL;
  *out = strtod(value, &end);
  if (end != value && *end == '\0' && isfinite(*out)) return 0;
  return fprintf(stderr, "%s takes a finite number, not \"%s\"\n", name, value), 2;
}

static int read_choice(const choice *option, const char *value, int32_t *out) {
  for (size_t i = 0; i < COUNT(option->words) && option->words[i]; ++i)
    if (strcmp(option->words[i], value) == 0) return *out = option->values[i], 0;
  fprintf(stderr, "%s takes", option->name);
  for (size_t i = 0; i < COUNT(option->words) && option->words[i]; ++i)
    fprintf(stderr, "%s %s", i > 0 ? " or" : "", option->words[i]);
  return fprintf(stderr, ", not \"%s\"\n", value), 2;
}

static int parse_pair(const char *name, const char *value, arguments *a) {
  char *const base = (char *)a;
  if (!strcmp(name, "--text")) return a->text = value, 0;
  if (!strcmp(name, "--out")) return a->out = value, 0;
  if (!strcmp(name, "--schedule")) return a->pipeline.schedule = value, 0;
  if (!strcmp(name, "--lr")) return read_real(name, value, &a->lr);
  const number *found = find_number(numbers, COUNT(numbers), name);
  if (found) return read_number(found, value, (int64_t *)(void *)(base + found->field));
  found = find_number(degrees, COUNT(degrees), name);
  if (found) {
    int64_t degree = 0;
    const int refused = read_number(found, value, &degree);
    if (!refused) *(int32_t *)(void *)(base + found->field) = (int32_t)degree;
    return refused;
  }
  for (size_t i = 0; i < COUNT(choices); ++i)
    if (!strcmp(choices[i].name, name))
      return read_choice(&choices[i], value, (int32_t *)(void *)(base + choices[i].field));
  return fprintf(stderr, "unknown option %s\n%s", name, usage), 2;
}

static void set_defaults(arguments *a) {
  *a = (arguments){.sequence = 128, .batch = 16, .steps = 400, .warmup = 20, .microbatches = 1, .sample = 240, .lr = 3e-3,
                   .out = "train-out"};
  gw_mesh_options_init(&a->mesh, sizeof a->mesh);
  gw_decoder_options_init(&a->llama, sizeof a->llama);
  gw_shard_options_init(&a->shard, sizeof a->shard);
  gw_tensor_parallel_options_init(&a->tensor, sizeof a->tensor);
  gw_pipeline_options_init(&a->pipeline, sizeof a->pipeline);
  gw_parallel_options_init(&a->parallel, sizeof a->parallel);
  a->parallel.shard = &a->shard;
  a->parallel.tensor_parallel = &a->tensor;
  a->parallel.pipeline = &a->pipeline;
  a->llama.dim = 128;
  a->llama.layers = 6;
  a->llama.heads = 4;
  a->parallel.seed = 1;
}

int parse_arguments(int argc, char **argv, arguments *out) {
  set_defaults(out);
  for (int i = 1; i < argc; i += 2) {
    if (strcmp(argv[i], "--help") == 0) return fputs(usage, stderr), 2;
    if (i + 1 == argc) return fprintf(stderr, "%s has no value\n%s", argv[i], usage), 2;
    const int refused = parse_pair(argv[i], argv[i + 1], out);
    if (refused) return refused;
  }
  if (out->text == NULL) return fputs(usage, stderr), 2;
  return 0;
}
