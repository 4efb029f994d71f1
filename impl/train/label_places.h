// Finds labels of a language model that do not lie over the tokens where the caller says.
//
// Thread rule: a function of values.
#pragma once

#include "tensor/tensor.h"

namespace gangway {

// `tokens` and `labels`: i64 of one shape [rows, sequence], in host memory. `shifts`: whether the library
// shifts the labels. INVALID_ARGUMENT: it shifts labels that are the next tokens already, or it uses labels
// as they are which are the tokens themselves. Ignored labels fit everywhere, and labels that fit both
// places, as those of constant tokens do, are not refused. It reads up to the first label that fits the
// caller's word.
void check_label_places(const Tensor& tokens, const Tensor& labels, bool shifts);

}  // namespace gangway
