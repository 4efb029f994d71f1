/* What the training example is told on its command line. */
#ifndef TRAINER_OPTIONS_H
#define TRAINER_OPTIONS_H

#include <gangway/gangway.h>

typedef struct arguments {
  const char *text, *out;
  gw_mesh_options mesh;
  gw_decoder_options llama;
  gw_shard_options shard;
  gw_tensor_parallel_options tensor;
  gw_pipeline_options pipeline;
  gw_parallel_options parallel; /* points at these three */
  int64_t sequence, batch, steps, warmup, microbatches, sample;
  double lr;
} arguments;

/* Fills *out, which stays where it is. Defaults, then "--name value" pairs; 0, or 2 after a text on standard error. */
int parse_arguments(int argc, char **argv, arguments *out);

#endif
