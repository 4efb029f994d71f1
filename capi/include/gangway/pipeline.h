/* Pipelines of stages that the caller computes. The caller pulls actions, computes them with tensors of its
 * own, and hands the results back; the library runs the schedule and moves what goes between the stages. A
 * model of this library that is cut into stages needs none of this: it takes gw_parallelize over a mesh with
 * pp, then gw_train_step. */
#ifndef GANGWAY_PIPELINE_H
#define GANGWAY_PIPELINE_H

#include <gangway/gang.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_pipeline gw_pipeline;

typedef struct gw_pipeline_options {
  size_t struct_size;
  const gw_ext *next;
  /* "gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zbv" or "dualpipev". Default null:
   * "1f1b". */
  const char *schedule;
  /* The whole schedule as CSV instead, with a row for each rank and cells like "2F0", "0SEND_B3", "1UNSHARD".
   * If it has no sends, they are added. Default null: the schedule of that name. */
  const char *schedule_csv;
  int32_t microbatches;    /* Microbatches of a pass; at least 1, and not set with schedule_csv. */
  int32_t stages_per_rank; /* Default 0: the schedule's own number. */
  /* At most so many stages of a rank are unsharded at a time: adds the actions UNSHARD, RESHARD and
   * REDUCE_GRAD. Default 0: adds none. */
  int32_t shard_actions;
  int32_t reserved;
} gw_pipeline_options;
GW_API void gw_pipeline_options_init(gw_pipeline_options *options, size_t size);
/* Collective over the gang, whose rank r does row r of the schedule. Refusals are agreed. Makes a pipeline.
 * The caller releases *out_pipeline. INVALID_ARGUMENT: an unknown schedule, numbers that break its rules, a
 * CSV that is not correct (the text says where). MISMATCH: ranks have different schedules. */
GW_API gw_status gw_pipeline_create(gw_gang *gang, const gw_pipeline_options *options,
                                    gw_pipeline **out_pipeline);
GW_API gw_pipeline *gw_pipeline_retain(gw_pipeline *pipeline);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. A release in the
 * middle of a pass ends the pass on all ranks, whose calls return ABORTED. Null is allowed. */
GW_API void gw_pipeline_release(gw_pipeline *pipeline);

typedef struct gw_pipeline_info {
  size_t struct_size;
  const gw_ext *next;
  int32_t stages;       /* The stages of the whole pipeline. */
  int32_t microbatches; /* The microbatches of a pass. */
  int32_t local_stages; /* The stages of this rank. */
  int32_t rank;         /* The rank of the gang whose row of the schedule this one does. */
} gw_pipeline_info;
GW_API void gw_pipeline_info_init(gw_pipeline_info *info, size_t size);
/* Local. Fills *info. INVALID_ARGUMENT: null, or a struct_size that is too small. */
GW_API gw_status gw_pipeline_describe(const gw_pipeline *pipeline, gw_pipeline_info *info);
/* Local. Gives the rank of the gang that runs `stage`. INVALID_ARGUMENT: no such stage. */
GW_API gw_status gw_pipeline_stage_rank(const gw_pipeline *pipeline, int32_t stage, int32_t *out_rank);
/* Local. Sets what the passes that follow do: 1, as at first, forwards and backwards; 0, forwards alone. It
 * must be equal on all ranks. INVALID_STATE: in the middle of a pass. */
GW_API gw_status gw_pipeline_set_training(gw_pipeline *pipeline, int32_t training);

typedef int32_t gw_action_kind;
enum gw_action_kind_value {
  GW_ACTION_INVALID = -1,
  GW_ACTION_END = 0,      /* The pass is over. The next gw_pipeline_next begins another one. */
  GW_ACTION_FORWARD = 1,  /* Inputs: what the stage before made. Results: the stage's outputs. */
  GW_ACTION_BACKWARD = 2, /* Inputs: gradients of the outputs. Results: gradients of the forward's inputs. */
  GW_ACTION_INPUT_GRADIENT = 3,  /* As BACKWARD, without the gradients of the weights, which come later. */
  GW_ACTION_WEIGHT_GRADIENT = 4, /* The gradients of the weights. */
  GW_ACTION_UNSHARD = 5,         /* The stage's weights are needed from here on. */
  GW_ACTION_RESHARD = 6,         /* The stage's weights are not needed for a while. */
  GW_ACTION_REDUCE_GRAD = 7      /* All gradients of the stage's weights are made. */
};

typedef struct gw_pipeline_action {
  size_t struct_size;
  const gw_ext *next;
  gw_action_kind kind;
  int32_t stage;
  int32_t microbatch;  /* -1 where the kind has none. */
  int32_t first_stage; /* 1: nothing comes in; the caller's own data are the input. */
  int32_t last_stage;  /* 1: nothing goes on; the loss is the caller's. */
  int32_t training;    /* 1: backwards come in this pass. 0: forwards alone. */
  /* Borrowed until the next gw_pipeline_next. What they show stays as it is until the end of this
   * microbatch's backward on the stage, or, where the backward comes in two parts, of its weight gradient.
   * Null data stand for an output that has no gradient, because it is no floating tensor. */
  const gw_view *inputs;
  size_t input_count;
} gw_pipeline_action;
GW_API void gw_pipeline_action_init(gw_pipeline_action *action, size_t size);
/* Collective over the gang, as part of a pass: each rank pulls and does its own actions. BUSY: another
 * thread is in a call on the pipeline. Waits until the inputs are here, and for GW_ACTION_END until all
 * that was sent has arrived. The inputs are ordered on `stream`. INVALID_STATE: gw_pipeline_done comes
 * first. PEER_LOST, TIMEOUT: as in any collective. */
GW_API gw_status gw_pipeline_next(gw_pipeline *pipeline, void *stream, gw_pipeline_action *action);
/* Local. Gives input `index` of the last gw_pipeline_next as a tensor that keeps its memory, for DLPack or
 * for a backward later on. Nothing else is written there while the tensor or an export of it lives, also
 * after the pass and the pipeline have ended. The caller releases *out_tensor, which is null where the input
 * has null data. INVALID_ARGUMENT: no such input. */
GW_API gw_status gw_pipeline_input(gw_pipeline *pipeline, size_t index, gw_tensor **out_tensor);
/* Local; starts what the schedule sends. Ends the action of the last gw_pipeline_next with its results, which
 * are copied, in the order of `stream`. A forward gives the outputs, at least one and at most 8 (on the last
 * stage none). A backward or input gradient gives a gradient for each input of the forward, with its shape
 * and dtype, and null data where that is no floating tensor (on the first stage none). Other actions give
 * none. INVALID_ARGUMENT: other tensors; the action is still to be done. INVALID_STATE: there is no action to
 * end. */
GW_API gw_status gw_pipeline_done(gw_pipeline *pipeline, const gw_view *outputs, size_t output_count,
                                  void *stream);

#ifdef __cplusplus
}
#endif
#endif
