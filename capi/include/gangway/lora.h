/* LoRA: fine-tuning by low-rank adapters of linear layers, with the files of PEFT. A layer with an adapter
 * computes y = x W^T + b + scale (drop(x) A^T) B^T, where A [rank, in] and B [out, rank] are parameters named
 * lora_A.weight and lora_B.weight beside its weight, and scale is alpha / rank. Everything else is frozen: it
 * has no gradient and no optimizer state. Gradients, steps, clipping, checkpoints of a run and every kind of
 * parallelism take adapters as they take other parameters. */
#ifndef GANGWAY_LORA_H
#define GANGWAY_LORA_H

#include <gangway/checkpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_lora_options {
  size_t struct_size;
  const gw_ext *next;
  /* Patterns of module paths (module.h), separated by commas: "**.q_proj, **.v_proj". Of the modules that a
   * pattern matches, the linear layers get adapters, except an lm_head. Default null: every linear layer. */
  const char *patterns;
  int64_t rank;            /* Default 8. */
  double alpha;            /* Default 8. */
  double dropout;          /* Default 0. Of an adapter's input, in training (gw_dropout_create). */
  uint64_t seed;           /* Of the first values of A. Default 0. */
  int32_t rank_stabilized; /* 1: scale is alpha / sqrt(rank). Default 0. */
  int32_t reserved;
} gw_lora_options;
GW_API void gw_lora_options_init(gw_lora_options *options, size_t size);

/* Local. Gives a whole model adapters and freezes its other parameters. Call it before gw_parallelize, or the
 * first call that wraps the model, with the same options on every rank. B begins as zeros, so that the model
 * computes what it did. A begins uniform within 1 / sqrt(in) of 0, as in PEFT; ABI.md has the formula. A
 * dropout has the bits of gw_dropout_create for a module with the layer's name and ".lora_dropout". Null
 * options are the defaults. INVALID_ARGUMENT: an option, or a pattern that matches no linear layer which can
 * have an adapter. NOT_FOUND: nothing matches a pattern. INVALID_STATE: the model is wrapped or has adapters
 * already, or is part of another one. */
GW_API gw_status gw_lora_apply(gw_module *model, const gw_lora_options *options);
/* Local. gw_lora_apply with what the adapter_config.json of a PEFT folder says; gw_lora_load later reads the
 * values. CORRUPT, NOT_SUPPORTED: what the file says, with its key and value. IO: there is no such file. */
GW_API gw_status gw_lora_apply_folder(gw_module *model, const char *folder, uint64_t seed);

/* Collective once the model has memory, else local. 0: the model computes without its adapters, as the
 * reference model of DPO; 1: with them. Parameters and optimizer state stay. A backward takes the adapters as
 * its forward did; where it recomputes a block, as they are then, so switch them back before it.
 * INVALID_STATE: a model without adapters. MISMATCH: ranks differ in `on`. */
GW_API gw_status gw_lora_enable(gw_module *model, int32_t on);

/* Collective. Writes folder/adapter_model.safetensors and folder/adapter_config.json, which
 * PeftModel.from_pretrained reads, in one commit as gw_module_save. `base` is base_model_name_or_path; null
 * is the folder from which the model was loaded. Returns what gw_module_save returns. INVALID_ARGUMENT:
 * max_file_bytes is not 0, since PEFT reads adapters from one file. NOT_SUPPORTED: the files of the model's
 * family have one module where the model has several, as a fused q, k and v. INVALID_STATE: a model without
 * adapters or memory. */
GW_API gw_status gw_lora_save(gw_module *model, const char *folder, const char *base,
                              const gw_save_options *options);
/* Collective, on any mesh. Loads the adapters' values from a folder of PEFT. Returns what gw_module_load
 * returns. INVALID_ARGUMENT: the file's adapters are of another scale, rank or other layers than the model's.
 * INVALID_STATE: a model without adapters or memory. */
GW_API gw_status gw_lora_load(gw_module *model, const char *folder);

/* Collective. Adds scale B A to each weight, in the master's dtype (f32 or f64), makes B zero and switches
 * the adapters off; gw_lora_enable(model, 1) begins anew from there, with an optimizer made anew. Then
 * gw_module_save, which refuses a model whose adapters are on, writes a plain folder of Hugging Face.
 * INVALID_STATE: the adapters are off, a model without adapters or memory, a forward awaits its backward. */
GW_API gw_status gw_lora_merge(gw_module *model, void *stream);

#ifdef __cplusplus
}
#endif
#endif
