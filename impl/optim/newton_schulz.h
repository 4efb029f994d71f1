// The nearest matrix with orthonormal rows or columns, by the Newton-Schulz iteration of Muon (Jordan and
// others, "Muon: an optimizer for hidden layers in neural networks", 2024).
//
// Thread rule: that of Ops.
#pragma once

#include "ops/ops.h"

namespace gangway {

// Replaces the matrix x (f64, f32 or bf16), after a division by max(|x|, eps), |x| being the Frobenius norm:
//   `steps` times: a = x x^T;  x = 3.4445 x + (-4.7750 a + 2.0315 a a) x
// A matrix with more rows than columns is taken as its transpose. In bf16 each of the three values is
// computed in f32 and rounded once, as torch.optim.Muon does.
void orthogonalize(Ops& ops, const Tensor& x, int64_t steps, double eps, Stack& temporaries, Stream& stream);

}  // namespace gangway
