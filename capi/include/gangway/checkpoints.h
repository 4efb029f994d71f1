/* The checkpoints of a run: everything that changes the next step, saved beside training and restored on
 * any mesh.
 *
 * A checkpoint is a folder such as run/step-00000500. It has each model as a Hugging Face folder
 * (config.json, model.safetensors), the states of each optimizer in whole, unpadded tensors
 * (optimizer.safetensors, with the names and layouts of model.safetensors: exp_avg.model.norm.weight), and
 * state.json: step, tokens, optimizers with steps, rates and loss scale, texts such as the position of the
 * data, the caller's bytes, and hashes of all that was written. Of a model whose adapters alone are
 * trained (lora.h) it has the adapters, in adapter/ as PEFT has them, and the hash of their base, but not
 * the base. One rename makes it visible, so no reader ever finds a part of one, and a save that is killed
 * leaves the earlier ones as they were.
 *
 * On the same mesh a run that is restored takes the steps of the undisturbed run, bit by bit. Number of
 * ranks, strategy, tp, pp and dtypes may all differ: each rank reads the byte ranges of its own rows.
 *
 * All calls with a gw_checkpoints are collective over its gangs, but for those that say local. BUSY:
 * another thread is in such a call. The writer's thread meets those of other ranks on a gang of its own. */
#ifndef GANGWAY_CHECKPOINTS_H
#define GANGWAY_CHECKPOINTS_H

#include <gangway/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The folder of a run, which one job holds at a time. The release of the last reference waits until a save in
 * progress has ended. */
typedef struct gw_checkpoints gw_checkpoints;

typedef struct gw_checkpoints_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t every;          /* gw_checkpoints_due says yes at multiples. Default 0: never. */
  int64_t max_file_bytes; /* Of a safetensors file; 0: no limit. Default 5 GiB. */
  int64_t timeout_ms;     /* Of the writing of one save. Default one hour. */
  const char *job;        /* Names the holder of the folder. Default null: host and process. */
  /* How many complete checkpoints stay; 0: all. Those between which no optimizer has made a step count as
   * one, of which the newest and the oldest stay. Default 3. */
  int32_t keep;
  /* 1: gw_checkpoints_save returns after the commit, and needs no memory for a copy. Default 0. */
  int32_t synchronous;
  gw_dtype model_dtype; /* Of the model's files. Default GW_DTYPE_NONE: the masters'. */
  int32_t reserved;
} gw_checkpoints_options;
GW_API void gw_checkpoints_options_init(gw_checkpoints_options *options, size_t size);
/* Collective. Opens the folder of a run, and makes it if it is missing; rank 0's name of it counts. Null
 * gangs are the thread's current ones, else one rank. The caller releases *out_checkpoints. If a job of
 * another host or container held the folder in the last minute, waits until that minute is over, and says so
 * in the log (gw_log_read). INVALID_ARGUMENT: an option out of its range. INVALID_STATE: another job holds
 * the folder and runs; the text says which. NOT_SUPPORTED: a fake gang of several ranks. IO. */
GW_API gw_status gw_checkpoints_create(gw_gangs *gangs, const char *folder,
                                       const gw_checkpoints_options *options,
                                       gw_checkpoints **out_checkpoints);
GW_API gw_checkpoints *gw_checkpoints_retain(gw_checkpoints *checkpoints);
GW_API void gw_checkpoints_release(gw_checkpoints *checkpoints);

/* A model with its optimizer, by name. The part "" lies in the checkpoint's folder itself, the part "teacher"
 * in teacher/. */
typedef struct gw_checkpoint_part {
  size_t struct_size;
  const gw_ext *next;
  const char *name; /* Letters, digits, - and _. Default null: "". */
  gw_module *model;
  gw_optimizer *optimizer; /* Of `model`. Default null: the model is not trained. */
  /* A folder whose tokenizer and generation files are copied into each checkpoint; rank 0's counts. Default
   * null: the one from which the model was loaded, if it is still there. */
  const char *carry_from;
} gw_checkpoint_part;
GW_API void gw_checkpoint_part_init(gw_checkpoint_part *part, size_t size);

/* A text of a checkpoint, by name: the position of a data set, for example. */
typedef struct gw_checkpoint_text {
  size_t struct_size;
  const gw_ext *next;
  const char *name;
  const char *text; /* UTF-8. */
} gw_checkpoint_text;
GW_API void gw_checkpoint_text_init(gw_checkpoint_text *text, size_t size);

/* What a save writes besides its parts. Step, tokens and texts must be equal on all ranks; rank 0's user
 * bytes are written. */
typedef struct gw_checkpoint_state {
  size_t struct_size;
  const gw_ext *next;
  int64_t step;   /* Batches taken; names the checkpoint. Default 0. */
  int64_t tokens; /* Seen by the model. Default 0. */
  const gw_checkpoint_text *texts;
  size_t text_count;
  const void *user; /* Bytes of the caller. */
  size_t user_size;
} gw_checkpoint_state;
GW_API void gw_checkpoint_state_init(gw_checkpoint_state *state, size_t size);

/* Local. Gives 1 if `step` is a multiple of options.every, else 0. INVALID_ARGUMENT: null. */
GW_API gw_status gw_checkpoints_due(const gw_checkpoints *checkpoints, int64_t step, int32_t *out_due);
/* Collective. Saves the parts. Returns when the values are copied to host memory, which is kept for the next
 * save and counted in gw_memory_use.host of the first part's model; a thread of low priority writes them.
 * First waits for the save before, and returns its error, if there is one: then nothing has been begun.
 * Training goes on after a save that failed, and the earlier checkpoints are untouched. INVALID_STATE: a
 * forward awaits its backward, a model has no memory, or another job has taken the folder. INVALID_ARGUMENT:
 * a part, or a model that the config.json of its family cannot describe (gw_decoder_options: out_bias without
 * qkv_bias). OUT_OF_MEMORY: no memory for the copy. MISMATCH: ranks have different states. IO, on every rank
 * with one text: a full disk and so on. */
GW_API gw_status gw_checkpoints_save(gw_checkpoints *checkpoints, const gw_checkpoint_part *parts,
                                     size_t part_count, const gw_checkpoint_state *state);
/* Collective. Waits until the last save has ended, and returns its error, once. IO and the other codes of
 * gw_checkpoints_save. */
GW_API gw_status gw_checkpoints_wait(gw_checkpoints *checkpoints);

typedef struct gw_restore_options {
  size_t struct_size;
  const gw_ext *next;
  int64_t step;      /* Default -1: the newest complete one. */
  int32_t no_verify; /* 1: reads the rows alone, and verifies no hashes. Default 0. */
  /* 1: what has no place, or no value, is left out and listed (gw_checkpoints_notes). Default 0: it is
   * refused. */
  int32_t partial;
} gw_restore_options;
GW_API void gw_restore_options_init(gw_restore_options *options, size_t size);
/* Collective. Restores parts from the newest complete checkpoint, or from that of a step, and moves newer
 * ones aside. Gives its step and tokens; *out_step is -1 if there is no checkpoint. All files are
 * verified, shared out among the ranks, before any value changes. Steps, loss scale and moments come from
 * the checkpoint; the options of the optimizers hold, and gw_checkpoints_notes lists what differs. A rate
 * that gw_optimizer_set_lr had set comes back if the option lr is unchanged. A parameter that was frozen
 * before begins its bias correction anew, and so does an optimizer of another kind (`partial`). A model
 * with adapters must have the values of its base before the call. NOT_FOUND: no checkpoint of the step, or
 * a part, parameter or state is missing. INVALID_ARGUMENT: another shape, dtype, config.json, kind of
 * optimizer or base of adapters. CORRUPT names file and tensor. IO: a file vanishes or changes while it is
 * read; only then values may be undefined. */
GW_API gw_status gw_checkpoints_restore(gw_checkpoints *checkpoints, const gw_checkpoint_part *parts,
                                        size_t part_count, const gw_restore_options *options,
                                        int64_t *out_step, int64_t *out_tokens);

/* Local. Copies a text of the checkpoint that was restored last, by name; a null text asks for the size.
 * NOT_FOUND: it has no such text. INVALID_STATE: nothing was restored. INVALID_ARGUMENT: the capacity is too
 * small. */
GW_API gw_status gw_checkpoints_text(const gw_checkpoints *checkpoints, const char *name, char *text,
                                     size_t capacity, size_t *out_len);
/* Local. Copies the caller's bytes of the checkpoint that was restored last; null data asks for their
 * number. INVALID_STATE: nothing was restored. INVALID_ARGUMENT: the capacity is too small. */
GW_API gw_status gw_checkpoints_user(const gw_checkpoints *checkpoints, void *data, size_t capacity,
                                     size_t *out_size);
/* Local. Copies a line for each thing that the last restore did not take over: what decides the numbers of
 * a step and differs ("lr: 0.001 in the checkpoint, 0.002 now", lora.alpha, param_dtype, fp8.scaling),
 * what was left out, and newer checkpoints that were moved aside (on rank 0). INVALID_STATE: nothing was
 * restored. INVALID_ARGUMENT: the capacity is too small. */
GW_API gw_status gw_checkpoints_notes(const gw_checkpoints *checkpoints, char *text, size_t capacity,
                                      size_t *out_len);
/* Local. Gives the bytes of host memory that are kept for copies. INVALID_ARGUMENT: null. */
GW_API gw_status gw_checkpoints_buffer_bytes(const gw_checkpoints *checkpoints, uint64_t *out_bytes);

/* Collective over the optimizer's gangs. Loads its states from one safetensors file: tensors STATE.PARAMETER
 * in the parameter's whole shape, and optionally `step`, one number; without it the number of steps stays.
 * Name and layout of a parameter are those of the model's own files, as in exp_avg.transformer.wte.weight of
 * a gpt2, or those of gw_parameter_info. A PyTorch state_dict loads if its states are saved under these
 * names: exp_avg.PARAMETER and exp_avg_sq.PARAMETER of torch.optim.AdamW, momentum.PARAMETER for the
 * momentum_buffer of torch.optim.SGD.
 * NOT_FOUND: a state is missing. INVALID_ARGUMENT: another shape or dtype, or a tensor that the optimizer has
 * no place for. IO. */
GW_API gw_status gw_optimizer_load(gw_optimizer *optimizer, const char *path);

#ifdef __cplusplus
}
#endif
#endif
