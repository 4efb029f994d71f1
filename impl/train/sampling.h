// How a token is drawn from the logits of a row, with the options of Hugging Face's generate() and in the
// order of its processors: the repetition penalty, the temperature, top_k, top_p, min_p.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "train/generate.h"

namespace gangway {

// INVALID_ARGUMENT: an option of the draw is out of range. `vocab`: the number of ids.
void check_sampling(const GenerateOptions& options, int64_t vocab);

// Draws a token id; `uniform`, in [0, 1), is the random number. `earlier`: the row's tokens so far, its
// prompt included, which only a repetition penalty reads. Of equal logits the lower id comes first. Returns
// -1 - id if the logit of token `id` is not finite.
int64_t sample(std::span<const double> logits, std::span<const int64_t> earlier,
               const GenerateOptions& options, double uniform);

}  // namespace gangway
