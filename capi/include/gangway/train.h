/* Training steps, evaluation, log-probabilities and text generation. */
#ifndef GANGWAY_TRAIN_H
#define GANGWAY_TRAIN_H

#include <gangway/optimizers.h>
#include <gangway/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The rows of this rank's data coordinate; dim 0 of every view is the batch. Views lie in memory of the host,
 * from where they are copied to another device, or in memory of the gang's device. Those of the host may be
 * strided, for rows that are cut out of a longer array: the step takes a dense copy.
 *
 * Labels of a language model. Without targets the library makes them of the tokens: each token predicts the
 * next one. Labels that are given (targets[0], i64) are used as they are: label[i] is what token[i] must
 * predict, and -100 does not count. shift_labels = 1 is for labels that lie over their own tokens, as Hugging
 * Face's collators make them: the library shifts them. */
typedef struct gw_batch {
  size_t struct_size;
  const gw_ext *next;
  const gw_view *inputs;
  size_t input_count;
  const gw_view *targets;
  size_t target_count;
  /* The number of items that count, of all of the rows, also where ranks of cp share them. Default -1: the
   * labels (the first target, i64) that are not -100. A decoder over cp counts them itself. */
  int64_t weight;
  int32_t shift_labels; /* 1: label[i] belongs to token[i] itself. Default 0: it is the next token. */
  int32_t reserved;
  /* Rows that hold several documents: a number for each token, i32 or i64 [rows, sequence], in memory of the
   * host. Consecutive tokens with one number are a document, and attention does not leave it; a number that
   * comes again in its row after another one is INVALID_ARGUMENT. A negative number is padding. Labels that
   * the library makes or shifts do not count at the last token of a document and in padding; labels that are
   * given are used as they are. Default null: each row is one document. */
  const gw_view *documents;
  /* The position of each token, likewise i32 or i64 [rows, sequence] in memory of the host, below
   * max_positions. Which tokens a token sees follows from its place in the row, not from its position.
   * Default null: positions count from 0 in each document. */
  const gw_view *positions;
  /* A weight of each label, GW_F32 or GW_F64, of the labels' shape, which multiplies its loss and is shifted
   * with it; it may be zero or negative. With weight = -1 the loss is divided by the sum of the weights of
   * the labels that count, which must not be negative over all ranks. Another weight is what this rank adds
   * to that divisor. A loss that a program computes from gw_log_probs is trained by its negative derivatives
   * as weights. Default null: each label weighs 1. */
  const gw_view *token_weights;
} gw_batch;
GW_API void gw_batch_init(gw_batch *batch, size_t size);

typedef struct gw_step_options {
  size_t struct_size;
  const gw_ext *next;
  int32_t microbatches;     /* Default 1. */
  int32_t allow_non_finite; /* Default 0: a non-finite loss or gradient skips the step alike on all ranks. */
  double max_grad_norm;     /* Default 0: no clipping. */
  double norm_type;         /* Default 2. Over 0 and at most 64, or infinity for the largest element. */
  double scale;             /* Of gradients, for loops whose backward starts with 1. Default 1. */
  /* 1: this rank asks all ranks to stop after this step, for instance since it got a signal. The step runs as
   * usual, and gw_step_result.stop is 1 on every rank. Default 0. */
  int32_t stop;
  /* 1: gw_train_step computes loss and gradients twice and compares their bits on each rank. Other bits are a
   * MISMATCH on every rank, with rank and parameter; nothing has changed then. It finds a processor or memory
   * that computes wrongly, for the price of a second forward and backward. Default 0. */
  int32_t replay;
  /* 1: the call computes the norm of each parameter's gradient, which gw_module_gradient_norms gives
   * afterwards. Default 0. */
  int32_t gradient_norms;
  int32_t reserved;
  /* Of a decoder's loss: this share of it, below 1, is the mean over all ids. Default 0. */
  double label_smoothing;
  double z_loss; /* Default 0. Of a decoder's loss: adds z_loss times the squared log of the softmax's sum. */
} gw_step_options;
GW_API void gw_step_options_init(gw_step_options *options, size_t size);

typedef int32_t gw_skip_reason;
enum gw_skip_reason_value {
  GW_SKIP_INVALID = -1,
  GW_SKIP_NONE = 0,
  GW_SKIP_NO_WEIGHT = 1, /* No item counted on any rank. */
  GW_SKIP_NON_FINITE = 2 /* The loss or a gradient was not finite. */
};

typedef struct gw_step_result {
  size_t struct_size;
  const gw_ext *next;
  double loss;              /* The global mean, on every rank; NaN if no item counted. */
  double grad_norm;         /* Before clipping; -1 if it was not computed. */
  double tokens_per_second; /* Over all data ranks. */
  double seconds;           /* The time of the step. */
  double wait_seconds;      /* The part of it that the rank waited in collectives. */
  double lr;                /* The learning rate. */
  int64_t weight;           /* The items that counted, over all data ranks; weight_sum, rounded. */
  int64_t step;
  int32_t skipped; /* 1: nothing was changed; skip_reason says why. */
  gw_skip_reason skip_reason;
  double loss_scale; /* That of this step; 1 is none (optim.h). For the next one: gw_optimizer_loss_scale. */
  int64_t tokens;    /* Of the batches of all data ranks, padding included. */
  int32_t stop;      /* 1: a rank asked for it by gw_step_options.stop; equal on all ranks. */
  int32_t reserved;
  double weight_sum; /* What the loss was divided by: with gw_batch.token_weights their sum, else weight. */
} gw_step_result;
GW_API void gw_step_result_init(gw_step_result *result, size_t size);

/* Collective. Makes one step: sums the weights, runs forward and backward of each microbatch, reduces and
 * clips the gradients, and steps the optimizer. Null options are the defaults; a null result is not filled.
 *
 * INVALID_ARGUMENT: one rank's bad argument comes back on every rank, as does what gw_module_forward would
 * refuse of any microbatch. For that, custom modules' `shapes` run for each microbatch before anything else
 * does, also in a step that is skipped because no item counts. A decoder's labels are refused if all that
 * count are the next tokens already and shift_labels would shift them again, and if all that count are the
 * tokens themselves and shift_labels is 0; on a GPU they are looked at only if the batch does not give its
 * weight. INVALID_STATE, on every rank: a rank's forward awaits its backward. MISMATCH, on every rank and
 * with both values: ranks have different step options or optimizers (kind, hyperparameters, rules, learning
 * rate, loss scale, steps).
 *
 * MISMATCH also tells that ranks which must hold equal trainable values (gw_module_check_replicas says which)
 * do not: that a rank, a fault of its memory or a program, has changed a value alone. After backward and
 * before the update ranks compare checksums of all such values, so that the next step tells it. The text
 * names the first element with both values and ranks. The step has emptied the gradients and changed nothing
 * else, and the gangs work on. A change of one f32 value is always seen; a step misses another difference
 * with a chance of 1 in 2^32. A step of weight 0 compares nothing. No step compares frozen parameters, which
 * gw_module_check_replicas does.
 *
 * A failure after the first forward (CALLER, PEER_LOST and so on) aborts every gang of a model of several
 * ranks. A model of one rank works on: its gradients are empty, and its parameters unchanged unless the
 * optimizer had begun.
 *
 * On a GPU, ids and labels of a batch whose weight is given are checked at the end of the step.
 * INVALID_ARGUMENT then empties the gradients and changes nothing else, and the gangs work on. */
GW_API gw_status gw_train_step(gw_module *model, gw_optimizer *optimizer, const gw_batch *batch,
                               const gw_step_options *options, void *stream, gw_step_result *result);
/* Local. Gives the 2-norms of the gradients of the last step with gradient_norms = 1: over all ranks,
 * unscaled and before clipping, in the order of gw_module_parameter, NaN for a parameter that is frozen.
 * *out_count is the number of parameters; a null array with out_capacity 0 asks for it. INVALID_ARGUMENT:
 * out_capacity is over 0 and less than the number; nothing is written. INVALID_STATE: no step has computed
 * them. */
GW_API gw_status gw_module_gradient_norms(const gw_module *model, double out_norms[], size_t out_capacity,
                                          size_t *out_count);
/* Collective. Computes the loss of a batch; saves and changes nothing. INVALID_ARGUMENT, on every rank: a
 * rank's batch, options or result, and what gw_module_forward would refuse of any microbatch. MISMATCH:
 * different options. */
GW_API gw_status gw_eval_step(gw_module *model, const gw_batch *batch, const gw_step_options *options,
                              void *stream, gw_step_result *result);
/* Collective. The optimizer's half of a step, for loops of the caller's own: divides the gradients by the
 * loss scale, scales and clips them, steps, empties them, and updates a dynamic loss scale. A null result is
 * not filled. INVALID_ARGUMENT, on every rank: a rank's options. INVALID_STATE, on every rank: a rank's
 * forward awaits its backward, or a shard group of it has full gradients that are not reduced (the text names
 * it). MISMATCH as in gw_train_step; if values differ, the gradients stay as they are. Where ranks hold equal
 * values, a step exchanges the checksums, and waits for a GPU to have them. */
GW_API gw_status gw_optimizer_step(gw_optimizer *optimizer, const gw_step_options *options, void *stream,
                                   gw_step_result *result);

/* Collective. Gives the log-probability of each label of a batch, in the shape of the labels: out_log_probs
 * in host memory, 0 where a label does not count. They are equal on all ranks of one data coordinate. Whole
 * logits never exist. Reads only `microbatches` of the options.
 *
 * For preference losses (DPO and the like): compute the loss from these numbers, and give its negative
 * derivatives by them to gw_train_step, as token_weights of the same labels, with the number of rows or pairs
 * as weight. INVALID_ARGUMENT, on every rank: a rank's out_capacity is less than the number of labels, the
 * batch has token_weights, the model is no decoder, and what gw_eval_step refuses. */
GW_API gw_status gw_log_probs(gw_module *model, const gw_batch *batch, const gw_step_options *options,
                              void *stream, double out_log_probs[], size_t out_capacity, size_t *out_count);

/* Called on this rank for each new token of a prompt. *stop = 1: this rank asks to end after this token; all
 * ranks do. */
typedef gw_status (*gw_token_fn)(void *user, int64_t row, int64_t token, int32_t *stop);

typedef struct gw_generate_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t token_count; /* Default 64. */
  double temperature;  /* Default 1. 0: the most likely token. */
  int64_t top_k;       /* Choose among the top_k most likely tokens. Default 0: among all. */
  uint64_t seed;
  double top_p; /* Choose among the fewest tokens whose probabilities reach it together. Default 1: all. */
  double min_p; /* Leave out tokens below this times the most likely one's probability. Default 0: none. */
  /* Of tokens that the row has already: positive logits are divided by it, others multiplied. Default 1. */
  double repetition_penalty;
  const int64_t *stop_tokens; /* A row ends with the first of these. Default null: none. */
  size_t stop_count;
  gw_token_fn on_token; /* Default null. Ranks may have different ones. */
  void *user;           /* Of on_token. */
} gw_generate_options;
GW_API void gw_generate_options_init(gw_generate_options *options, size_t size);
/* Collective. Continues `prompt`, which is token ids, by a sharded decoder, on every mesh. Gives token_count
 * tokens, or fewer if a stop token or on_token ends them, the same on every rank. A cache keeps the keys and
 * values of earlier tokens. INVALID_ARGUMENT, on every rank: a rank's out_capacity is less than token_count,
 * the model is no decoder or not causal, an id is outside of the vocabulary, or max_position_embeddings is
 * less than prompt_count + token_count - 1. INVALID_STATE: a model without memory, or a logit that is not
 * finite. */
GW_API gw_status gw_generate(gw_module *model, const int64_t prompt[], size_t prompt_count,
                             const gw_generate_options *options, void *stream, int64_t out_tokens[],
                             size_t out_capacity, size_t *out_count);
/* Collective. gw_generate for several prompts at a time: `lengths` has the number of tokens of each, and
 * `prompts` all tokens, one prompt after the other. out_tokens is [row_count, token_count], and out_counts
 * says how many tokens of each row there are; the others are -1. INVALID_ARGUMENT, on every rank: a rank's
 * out_capacity is less than row_count times token_count, and what gw_generate refuses of any prompt.
 * INVALID_STATE as in gw_generate. */
GW_API gw_status gw_generate_rows(gw_module *model, const int64_t prompts[], const int64_t lengths[],
                                  size_t row_count, const gw_generate_options *options, void *stream,
                                  int64_t out_tokens[], size_t out_capacity, int64_t out_counts[]);

#ifdef __cplusplus
}
#endif
#endif
