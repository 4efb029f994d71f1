/* What tests in C and in C++ share: the last error, a small model, and its tokens. */
#ifndef GANGWAY_TESTS_CAPI_SMALL_H
#define GANGWAY_TESTS_CAPI_SMALL_H

#include <gangway/gangway.h>

#define MAYBE_UNUSED __attribute__((unused))

static MAYBE_UNUSED gw_error_info last_error(void) {
  gw_error_info info;
  gw_error_info_init(&info, sizeof info);
  gw_last_error(&info);
  return info;
}

/* A Llama with 11 ids, 8 dims and one layer. */
static MAYBE_UNUSED gw_decoder_options small_llama(void) {
  gw_decoder_options o;
  gw_decoder_options_init(&o, sizeof o);
  o.vocab = 11;
  o.dim = 8;
  o.layers = 1;
  o.heads = 2;
  o.kv_heads = 1;
  o.ffn = 16;
  o.max_positions = 16;
  return o;
}

/* Tokens [rows, 4] in a fixed pattern. The labels are the tokens themselves, and the library shifts
 * them. */
typedef struct small_batch {
  int64_t tokens[4 * 4];
  int64_t shape[2];
  gw_view input, target;
  gw_batch batch;
} small_batch;
static MAYBE_UNUSED void fill_batch(small_batch* b, int64_t rows, int64_t first_row) {
  for (int64_t i = 0; i < rows * 4; ++i) b->tokens[i] = (first_row * 4 + i) * 3 % 11;
  b->shape[0] = rows;
  b->shape[1] = 4;
  gw_view_set(&b->input, b->tokens, b->shape, 2, GW_I64);
  b->target = b->input;
  gw_batch_init(&b->batch, sizeof b->batch);
  b->batch.inputs = &b->input;
  b->batch.input_count = 1;
  b->batch.targets = &b->target;
  b->batch.target_count = 1;
  b->batch.shift_labels = 1;
}

/* Describes that Llama, for gw_verify. */
static MAYBE_UNUSED gw_status build_small_llama(void* user, gw_module** out_model) {
  const gw_decoder_options o = small_llama();
  (void)user;
  return gw_decoder_create(&o, out_model);
}

#ifdef __cplusplus
/* with(gw_batch_init) returns such a struct with its defaults. */
template <typename Struct, typename Size>
Struct with(void (*init)(Struct*, Size)) {
  Struct made;
  init(&made, sizeof made);
  return made;
}
#endif

#endif
