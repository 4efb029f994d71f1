/* Checkpoints: saving and loading the values of a model as safetensors files. */
#ifndef GANGWAY_CHECKPOINT_H
#define GANGWAY_CHECKPOINT_H

#include <gangway/module.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_save_options {
  size_t struct_size;
  const gw_ext *next;
  gw_dtype dtype; /* The dtype of the files. Default GW_DTYPE_NONE: the master's. */
  int32_t reserved;
  int64_t max_file_bytes; /* Of a file of weights; a tensor is never cut. Default 0: no limit, one file. */
} gw_save_options;
GW_API void gw_save_options_init(gw_save_options *options, size_t size);
/* Collective. Writes folder/model.safetensors with Hugging Face's names and, for a decoder,
 * folder/config.json; above max_file_bytes model-00001-of-00002.safetensors and so on, with
 * model.safetensors.index.json. The folder is made if it is missing.
 *
 * config.json has the keys of the model's family, and all other keys of the config.json from which the values
 * were loaded (ids of tokens, notes of a user); of a model that was not loaded, those of the file that it
 * replaces, if that describes the same model. The files that belong to a model that was loaded (its
 * tokenizer, generation_config.json: *.json, *.txt, *.model, *.jinja, *.tiktoken) are copied from their
 * folder, if it is still there, unless the new one has files of these names.
 *
 * A save is one commit. Whenever it ends or is killed, and on every rank and file system with symbolic links
 * and either hard links or an exchange of names, each reader of the folder finds all files of the earlier
 * checkpoint or all files of the new one. The new files replace all files of weights and the index of the
 * earlier one; all else in the folder stays. A file that is a symbolic link is replaced, and what it points
 * at stays. Until the commit the new files lie in folder/.gangway-save, on the same file system, so it needs
 * room for both. The next save removes what a killed one left.
 *
 * INVALID_ARGUMENT: a dtype that is not floating, a negative max_file_bytes, an empty name, or a model that
 * transformers would read as another one (out_bias without qkv_bias). INVALID_STATE: a model without memory,
 * or another save into the folder is at work. IO, on every rank: a full disk, a limit on file sizes (which
 * sends no signal here) and so on. */
GW_API gw_status gw_module_save(gw_module *model, const char *folder, const gw_save_options *options);

typedef struct gw_load_options {
  size_t struct_size;
  const gw_ext *next;
  /* 1: the load ignores tensors that the model has no place for, whatever their dtype; tensors that an index
   * lists although no file has them; and, for a model that ties its embedding, an lm_head.weight that differs
   * from model.embed_tokens.weight. Default 0: each of these is an error. */
  int32_t ignore_extra;
  int32_t ignore_config; /* 1: a folder's config.json may describe another model. Default 0. */
} gw_load_options;
GW_API void gw_load_options_init(gw_load_options *options, size_t size);
/* Collective, on any mesh. Loads values from a safetensors file, or from a folder: from its
 * model.safetensors, else from the files that its model.safetensors.index.json names. Files may hold f64,
 * f32, bf16 or f16; each value is converted to the master's dtype, and rounded to the nearest where that is
 * narrower. Each rank reads its own rows alone. All ranks must open the same files: they compare size, time
 * of change and a hash of each header, and on one host the inode, too.
 *
 * For a decoder, a folder's config.json must describe the same function: all fields of the table at
 * gw_decoder_options_from_folder except max_positions and initializer_range.
 *
 * Every rank returns the first refusal, and values are as before. NOT_FOUND: a parameter is missing in the
 * files. INVALID_ARGUMENT, with both values: a shape or dtype, a tensor that the model has no place for, two
 * values for a tied parameter, another config.json. MISMATCH: ranks opened different files. CORRUPT: what a
 * file says. NOT_SUPPORTED: what a file says, a parameter of a dtype or with dims that the library does not
 * read, or a folder of weights of PyTorch (.bin); the text says how to convert it. IO: a file is missing
 * (errno ENOENT). Once reading has begun, IO (a file ends early or was changed meanwhile) leaves some values
 * new and some old; the gangs work on. */
GW_API gw_status gw_module_load(gw_module *model, const char *path, const gw_load_options *options);

#ifdef __cplusplus
}
#endif
#endif
