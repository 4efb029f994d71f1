// The model of tests that need one and no numbers of their own: the vocabulary divides by no number of ranks, heads are
// grouped.
#pragma once

#include "nn/layers.h"

namespace gangway::test {

inline DecoderOptions small_llama(bool tied = false) {
  DecoderOptions config;
  config.vocab = 17;
  config.dim = 24;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.ffn = 40;
  config.max_positions = 12;
  config.tied = tied;
  return config;
}

}  // namespace gangway::test
