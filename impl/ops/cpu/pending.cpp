#include "ops/cpu/operations.h"

namespace gangway::cpu {

void row_dot(Context&, const RowDotArgs&) { fail(Code::not_supported, "row_dot is not implemented"); }
void layernorm(Context&, const LayerNormArgs&) { fail(Code::not_supported, "layernorm is not implemented"); }
void layernorm_backward(Context&, const LayerNormBackwardArgs&) {
  fail(Code::not_supported, "layernorm_backward is not implemented");
}
void activation(Context&, const ActivationArgs&) {
  fail(Code::not_supported, "activation is not implemented");
}
void activation_backward(Context&, const ActivationBackwardArgs&) {
  fail(Code::not_supported, "activation_backward is not implemented");
}
void dropout(Context&, const DropoutArgs&) { fail(Code::not_supported, "dropout is not implemented"); }

}  // namespace gangway::cpu
