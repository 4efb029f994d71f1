// The unnamed last part of a language model: final norm, output product, cross-entropy.
// Thread rule: that of the model.
#pragma once

#include "nn/layers.h"

namespace gangway {

constexpr int64_t kIgnoredLabel = -100;

// Children "model.norm" and "lm_head". forward({x}) -> {logits}, null frame only; forward({x, labels}) ->
// {loss, weight}.
ModulePtr make_head(int64_t dim, int64_t vocab, double eps, double deviation);

}  // namespace gangway
