// Text generation by a sharded decoder, with a cache of keys and values.
//
// Thread rule: one thread at a time; collective over the model's gangs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "parallel/model/model.h"

namespace gangway {

struct GenerateOptions {
  int64_t new_tokens = 64;
  double temperature = 1;  // 0: the most likely token
  int64_t top_k = 0;       // choose among so many of the likeliest tokens; 0: all
  double top_p = 1;        // choose among the fewest tokens whose probabilities reach it together
  double min_p = 0;        // leave out tokens below this times the probability of the likeliest
  // Divides positive logits of tokens that the row has already, and multiplies others. 1: none.
  double repetition_penalty = 1;
  std::vector<int64_t> stop_tokens = {};  // a row ends with the first of these
  uint64_t seed = 0;
  // Called on this rank for each new token, in the order of the rows. False: this rank asks to end here; all
  // ranks do. Ranks may have different functions, or none.
  std::function<bool(size_t row, int64_t token)> on_token = {};
};

using TokenRows = std::vector<std::vector<int64_t>>;

// Continues the prompts, whose lengths may differ and which are equal on all ranks. Returns the new tokens of
// each prompt, equal on all ranks: `new_tokens` of them, or fewer if the row ends with a stop token or a rank
// asks to end. The random numbers of a row depend on the seed and its place alone, whatever the number of
// rows. One rank of the last stage draws for all ranks. Each rank of cp reads all tokens itself.
//
// INVALID_ARGUMENT, on all ranks: a prompt with the new tokens is longer than max_positions, or an option is
// out of range.
TokenRows generate(Model& model, const TokenRows& prompts, const GenerateOptions& options, Stream& stream);
// Continues one prompt.
std::vector<int64_t> generate(Model& model, std::span<const int64_t> prompt, const GenerateOptions& options,
                              Stream& stream);

}  // namespace gangway
