// Floating-point operations of a training step, for the model FLOPs utilization (MFU).
//
// Thread rule: pure functions, except measured_peak.
#pragma once

#include <cstdint>

#include "nn/layers.h"
#include "ops/ops.h"

namespace gangway {

// FLOP of forward and backward for one token: 6 x (parameters without the embedding, with the head) for the
// products, and for the causal attention of each layer 6 x width x T, where width is heads x head_dim and T
// the number of tokens that a token may attend to: the sequence, or the layer's window if it is shorter.
// Recomputation does not count. (PaLM, Chowdhery and others, 2022, appendix B, with the causal half.)
double flops_per_token(const DecoderOptions& options, int64_t sequence);

// Measures what a rank's device reaches in a product of two matrices, in FLOP per second: the best of three
// products that take some tens of milliseconds together on a CPU. Local; all ranks should call it at the same
// time, since they share the machine.
double measured_peak(Ops& ops, DType dtype, Stream& stream);

}  // namespace gangway
