/* Metrics: the numbers of a training run, in files, as a picture, or by a callback. */
#ifndef GANGWAY_METRICS_H
#define GANGWAY_METRICS_H

#include <gangway/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of the steps since the row before. The fields in seconds are sums over these steps; loss,
 * grad_norm, lr and loss_scale are those of the last one. A double that is absent is NaN, and files leave it
 * out. */
typedef struct gw_metrics_row {
  size_t struct_size;
  const gw_ext *next;
  int64_t step;           /* Steps of the run, skipped ones included. */
  int64_t tokens;         /* Of the run so far, over all data ranks. */
  int64_t samples;        /* Rows of the global batches of the run so far. */
  double loss;            /* As gw_step_result.loss. */
  double validation_loss; /* Of the last gw_metrics_log_evaluation since the row before; NaN: none. */
  double grad_norm;       /* NaN if it was not computed. */
  double lr;
  double loss_scale;
  double tokens_per_second; /* Of the steps with a label that counts; 0 if there is none. */
  /* The model FLOPs utilization: the FLOP of forward and backward for the tokens of the interval, over what
   * all ranks could do in `seconds` at their peak. A token counts 6 x (parameters without the embedding, with
   * the head) + 6 x layers x heads x head_dim x T, where T is the sequence, or the window if that is shorter.
   * NaN if the model is no decoder, or gw_metrics_options.sequence is 0. */
  double mfu;
  double seconds;      /* In steps. */
  double data_seconds; /* These three are what the caller has passed. */
  double checkpoint_seconds;
  double evaluate_seconds;
  double wait_seconds;         /* In collectives: the mean of all ranks. */
  int64_t slowest_rank;        /* The rank that waited least: the others waited for it. */
  double slowest_rank_seconds; /* How much longer the other ranks waited than that rank, on average. */
  int64_t memory;              /* Bytes of the model and its optimizers on the rank that has most. */
  int64_t memory_peak;         /* The most of `memory` so far. */
  int64_t skipped;             /* Steps that changed nothing. */
} gw_metrics_row;
GW_API void gw_metrics_row_init(gw_metrics_row *row, size_t size);

/* Gets each row, on every rank. The fields in seconds but wait_seconds, and what is divided by them, are the
 * rank's own; all others are equal on all ranks. `row` is borrowed. */
typedef gw_status (*gw_metrics_fn)(void *user, const gw_metrics_row *row);

typedef struct gw_metrics_options {
  size_t struct_size;
  const gw_ext *next;
  /* Paths of files that rank 0 writes: JSON lines, CSV, and a picture of the losses, drawn by
   * gw_metrics_flush. Default null: not written. A file that is there is continued. A line of a step that
   * comes again is cut. No symbolic link is followed: IO for lines, and a picture takes a link's place. A
   * fifo is IO, too. */
  const char *json_lines;
  const char *csv;
  const char *svg;
  int32_t every; /* A row ends at each step that is a multiple of this. Default 1. */
  int32_t reserved;
  int64_t sequence; /* The tokens of a row of the batch, for mfu. Default 0: no mfu. */
  /* Of one rank, in FLOP/s. Default 0: measured by a short product at creation, and again when a step beats
   * it; a row whose mfu would still be over 1 has none. */
  double peak_flops;
  gw_metrics_fn sink; /* Default null. */
  void *user;
  gw_free_fn free_user;
} gw_metrics_options;
GW_API void gw_metrics_options_init(gw_metrics_options *options, size_t size);

typedef struct gw_metrics gw_metrics;

/* Collective over the gangs of `model`, which it keeps alive. The caller releases *out_metrics. `free_user`
 * runs once, also if the call fails. INVALID_STATE: before gw_parallelize or gw_module_materialize.
 * INVALID_ARGUMENT names the option. MISMATCH: ranks have other numbers in `every` or `sequence`. IO, on
 * every rank: a file cannot be opened. */
GW_API gw_status gw_metrics_create(gw_module *model, const gw_metrics_options *options,
                                   gw_metrics **out_metrics);
GW_API gw_metrics *gw_metrics_retain(gw_metrics *metrics);
GW_API void gw_metrics_release(gw_metrics *metrics);

typedef struct gw_metrics_step {
  size_t struct_size;
  const gw_ext *next;
  int64_t samples;           /* The rows of the global batch. */
  double data_seconds;       /* The time in which the step waited for its batch. */
  double checkpoint_seconds; /* The time in which saves stopped training since the step before. */
} gw_metrics_step;
GW_API void gw_metrics_step_init(gw_metrics_step *step, size_t size);

/* Collective. Adds the result of a step. At multiples of gw_metrics_options.every the ranks exchange their
 * waiting times, and the row is written. A null `step` has zeros. IO, on every rank: a file cannot be
 * written. CALLER, or the code that it returned: the sink. */
GW_API gw_status gw_metrics_log(gw_metrics *metrics, const gw_step_result *result,
                                const gw_metrics_step *step);
/* Local. Fills *row with the newest row, and gives how many rows this object has given: a caller that
 * compares the number with that of its last call knows whether there is a new one, and needs no sink.
 * INVALID_ARGUMENT: a null. */
GW_API gw_status gw_metrics_latest(const gw_metrics *metrics, gw_metrics_row *row, int64_t *out_rows);
/* Local. Adds the mean loss of an evaluation and its duration to the next row. INVALID_ARGUMENT: null. */
GW_API gw_status gw_metrics_log_evaluation(gw_metrics *metrics, double loss, double seconds);
/* Collective. Writes a row of the interval that has not ended, whose place the row that ends it will take,
 * draws the picture and syncs the files. Call it at each checkpoint and at the end. IO, on every rank. */
GW_API gw_status gw_metrics_flush(gw_metrics *metrics);

/* Local. Copies the place in the run, as UTF-8, into `text`, which has room for `capacity` bytes. *out_len is
 * its length. A null text asks for the length alone. A checkpoint saves it. INVALID_ARGUMENT: `capacity` does
 * not exceed *out_len. */
GW_API gw_status gw_metrics_position(const gw_metrics *metrics, char *text, size_t capacity, size_t *out_len);
/* Collective. Continues at a place that gw_metrics_position gave: counts go on from there, and lines of
 * later steps are cut from the files. If a file lacks rows before that place, the log (gw_log_read) has a
 * warning. CORRUPT: another text. */
GW_API gw_status gw_metrics_restore(gw_metrics *metrics, const char *position);

#ifdef __cplusplus
}
#endif
#endif
