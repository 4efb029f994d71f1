// The ops layer. Belongs here: operations on tensors of one device and their kernels. Does not: modules (nn), anything
// that talks to another rank.
//
// The operations that compute: an abstract interface over tensors, implemented once per kind of device. Each takes an
// argument struct; an absent Tensor means "not wanted". Every `_backward` stands next to its forward.
//
// Conventions, for all operations:
// - Letters: T tokens (batch x sequence), D model width, F feed-forward width, V vocabulary, B batch, S sequence,
//   H query heads, G key/value heads, K head width.
// - Tensors named as inputs are read, as outputs written whole; "+=" says that the operation adds.
// - Activations and weights share one dtype: f64, f32, bf16 or f16. Statistics (rstd, lse) and weight gradients are f32,
//   or f64 for f64. Inside, bf16 and f16 are computed in f32.
// - Rows may be strided (stride of the last dim is 1) where the struct says so; otherwise tensors are contiguous.
// - Shapes are checked by GW_CHECK (they are the library's own mistakes); values are never checked.
// - On a meta device nothing is computed (ops/meta.h).
//
// Thread rule: one thread at a time; work is ordered on `stream`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "tensor/stack.h"
#include "tensor/tensor.h"

namespace gangway {

// c = op(a) op(b) [+ bias] [+ c]; 2-d, rows may be strided. a is [M, N'] or, transposed, [N', M]. dtype of a and b is
// the same; c may be f32 where they are of 16 bits (weight gradients). f32 accumulation (f64 for f64).
struct GemmArgs {
  Tensor a, b, c;
  Tensor bias;  // [columns of c], dtype of a; added once
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // beta = 1
};

// sum = x + residual (residual absent: sum is x and is not written), y = sum * rstd * weight,
// rstd = 1 / sqrt(mean(sum^2) + eps). [T, D]; rstd [T]. `sum` may be x or residual (in place).
// Zhang and Sennrich, "Root mean square layer normalization", 2019.
struct RmsNormArgs {
  Tensor x, residual, weight;
  Tensor y, sum, rstd;
  double eps = 1e-6;
};
// dx = d/dsum of y . dy, plus dsum when present (the gradient that comes along the residual stream); dweight +=.
// dx may be dsum (in place).
struct RmsNormBackwardArgs {
  Tensor dy, x /* the forward's sum */, weight, rstd, dsum;
  Tensor dx, dweight /* f32 or f64 */;
  Tensor y;  // when present (with dx): the forward's y, written again in the same pass; may be dy, in place
};

// Rotary embedding in the half-rotation form, in place or not: for each head vector (x1, x2) of two halves,
// y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin. x, y: [T, heads * K] with strided rows. cos, sin: [positions, K / 2],
// f32 (f64 for f64). Row t uses table row positions[t % n] (i32 [n], n divides T), or t % sequence when positions is
// absent. The backward is the same rotation by the opposite angle: inverse = true.
struct RopeArgs {
  Tensor x, y, cos, sin, positions;
  int64_t heads = 1;
  int64_t sequence = 1;
  bool inverse = false;
};

// y = silu(gate) * up; [T, F], rows of gate, up and their gradients may be strided. y contiguous.
struct SwigluArgs {
  Tensor gate, up, y;
};
struct SwigluBackwardArgs {
  Tensor gate, up, dy, dgate, dup;  // dgate may be gate, dup may be up, in place
  Tensor y;                         // when present: written again (in the same pass); may be dy, in place
};

// out = softmax(scale * q k^T + mask) v for each head; query head h uses key/value head h / (H / G).
// q [B, Sq, H, K], k and v [B, Sk, G, K], out like q; any strides but the last dim's. lse [B, H, Sq]: log of the sum of
// exponentials (f32, f64 for f64). Causal: key j is seen by query i when k_offset + j <= q_offset + i. A row that sees
// nothing gives 0 and lse = -infinity. The score matrix is never stored.
struct AttentionArgs {
  Tensor q, k, v, out, lse;
  double scale = 1;
  bool causal = true;
  int64_t q_offset = 0, k_offset = 0;
};
// Two results of the same queries over different keys made one, in place (rings of context parallelism):
//   out += sigmoid(part_lse - lse) * (part - out),  lse = log(exp(lse) + exp(part_lse)).
// part [B, S, H, K] and part_lse are attention's; out like part, but f32 (f64 for f64), so that many parts round once.
// lse and part_lse [B, H, S], any strides. A row whose part_lse is -infinity stays as it is.
struct AttentionMergeArgs {
  Tensor out, lse, part, part_lse;
};
// By recomputation from lse (Dao, "FlashAttention-2", 2023). dq like q; dk, dv like k, v, or f32 where those are of 16
// bits.
// accumulate: dq, dk and dv += (rings of context parallelism); they must be f32 or f64 then.
struct AttentionBackwardArgs {
  Tensor q, k, v, out, lse, dout;
  Tensor dq, dk, dv;
  double scale = 1;
  bool causal = true;
  int64_t q_offset = 0, k_offset = 0;
  bool accumulate = false;
};

// y[t] = table[ids[t]]; ids [T] i64, table [V, D]. An id outside [0, V) gives a row of NaN, and no gradient (who takes
// ids from outside refuses them first: nn/ids.h).
// A table of several parts: `table` has rows [first_row, first_row + V) of `rows`. An id of another part gives a row of
// zeros, and no gradient, so that the parts' results sum up to the whole table's.
struct EmbeddingArgs {
  Tensor table, ids, y;
  int64_t first_row = 0;
  int64_t rows = 0;  // 0: `table` is all of it
};
struct EmbeddingBackwardArgs {
  Tensor ids, dy, dtable;  // dtable += , f32 or f64; rows in order of t, so the sum has one order
  int64_t first_row = 0;   // of dtable
};

// Head and cross-entropy in token chunks, logits never whole. For labels[t] != ignore, in order of t:
// loss += -log softmax(x[t] w^T)[labels[t]], weight += 1. Gradients of scale * loss: dx (written), dw (+=).
// x [T, D], w [V, D], labels [T] i64. A label outside [0, V) gives NaN.
struct HeadLossArgs {
  Tensor x, w, labels;
  Tensor loss, weight;        // f64 [1] each; absent: not wanted
  Tensor dx, dw;              // absent: evaluation
  double scale = 1;           // loss scale / N: what the gradients start with
  bool dw_accumulate = true;  // false: dw is written (first use)
  int64_t ignore = -100;
};

// Cross-entropy over a vocabulary that lies in W parts, for C tokens. Two operations; between them the parts' statistics
// are brought together, 3 C numbers a part, so that logits never are.
//
// loss_part: logits [C, V], f32 or f64, become exp(logit - most). statistics [3, C] f64: most (the row's maximum), the sum
// of the exponentials, and the label's logit, -infinity where labels[c] is not in [first_id, first_id + V).
struct LossPartArgs {
  Tensor logits, labels, statistics;
  int64_t first_id = 0;
};
// loss_join: statistics [W, 3, C] of all parts. For labels[c] != ignore, in order of c:
// loss += -log softmax(logits)[labels[c]], weight += 1. What loss_part left of part `part` becomes the gradient of
// scale * loss in its logits. A label outside [0, ids) gives NaN.
struct LossJoinArgs {
  Tensor logits, labels, statistics;
  Tensor loss, weight;  // f64 [1] each; absent: not wanted
  int part = 0;
  int64_t first_id = 0;  // of that part
  int64_t ids = 0;       // of all parts
  double scale = 1;
  int64_t ignore = -100;
};

// AdamW (Loshchilov and Hutter, 2019) over one flat shard:
//   g' = g * scale * clip;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
//   p -= lr * (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + weight_decay * p)
// lr, step, scale and clip come by value: a queue may hold the work while the next step is prepared. p: f32 or f64; g, m
// and v: f64, f32, bf16 or f16 (rounded to nearest); `copy`: p rounded to its dtype in the same pass, or absent.
struct OptimizerControl {
  double lr = 0;
  double scale = 1;
  double clip = 1;
  int64_t step = 0;  // counts from 1
};
struct AdamWArgs {
  Tensor p, g, m, v, copy;
  OptimizerControl control;
  double lr_scale = 1, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
// SGD: g' = g * scale * clip + weight_decay * p; with momentum: m = momentum * m + g' (step 1: m = g'),
// g' = nesterov ? g' + momentum * m : m; p -= lr * g'.
struct SgdArgs {
  Tensor p, g, m, copy;
  OptimizerControl control;
  double lr_scale = 1, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

// The operations whose arguments are one record. What is alike for all of them, their checks' declarations and the
// devices that only hand them on, is made of this list.
#define GANGWAY_OPERATIONS(X)                  \
  X(gemm, GemmArgs)                            \
  X(rmsnorm, RmsNormArgs)                      \
  X(rmsnorm_backward, RmsNormBackwardArgs)     \
  X(rope, RopeArgs)                            \
  X(swiglu, SwigluArgs)                        \
  X(swiglu_backward, SwigluBackwardArgs)       \
  X(attention, AttentionArgs)                  \
  X(attention_merge, AttentionMergeArgs)       \
  X(attention_backward, AttentionBackwardArgs) \
  X(embedding, EmbeddingArgs)                  \
  X(embedding_backward, EmbeddingBackwardArgs) \
  X(loss_part, LossPartArgs)                   \
  X(loss_join, LossJoinArgs)                   \
  X(adamw, AdamWArgs)                          \
  X(sgd, SgdArgs)

class Ops {
 public:
  virtual ~Ops() = default;
  virtual Device& device() = 0;

#define GANGWAY_OPERATION(name, Args) virtual void name(const Args& args, Stream& stream) = 0;
  GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
  virtual void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream& stream) = 0;

  // y = x with conversion between f64, f32, bf16 and f16; any strides, equal shapes. Equal dtypes of any kind: a copy.
  virtual void cast(const Tensor& x, const Tensor& y, Stream& stream) = 0;
  virtual void fill(const Tensor& y, double value, Stream& stream) = 0;  // contiguous; floating or i64
  // y += factor * x; contiguous; dtypes may differ (f64, f32, bf16, f16).
  virtual void add(const Tensor& x, double factor, const Tensor& y, Stream& stream) = 0;
  virtual void scale(const Tensor& y, double factor, Stream& stream) = 0;
  // Column sums of x [T, D] into y [D] (f32 or f64), +=. For bias gradients.
  virtual void column_sum(const Tensor& x, const Tensor& y, Stream& stream) = 0;
  // out (f64 [1]) += sum |x|^p in a fixed order; p = infinity: out = max(out, max |x|). Contiguous f64, f32, bf16, f16.
  virtual void norm_power(const Tensor& x, double p, const Tensor& out, Stream& stream) = 0;
  // Rows [first, first + rows) of a parameter: element i of the full row-major tensor is philox_normal(key, i) *
  // deviation, rounded to y's dtype (f64, f32, bf16 or f16). y is contiguous; `first_element` is the index of its first.
  virtual void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation,
                           Stream& stream) = 0;
  // out (i64 [3]) = lowest and highest id of ids [T] i64 over those != ignore, and their number; none: {0, -1, 0}.
  virtual void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream) = 0;
};

// Ops of the device: "cpu" (the instruction set is chosen here; Config::cpu_isa caps it) or "meta" (shape checks only).
std::unique_ptr<Ops> make_ops(const std::shared_ptr<Device>& device);

// The operations of DeviceKind::extension. Any thread.
using OpsFactory = std::unique_ptr<Ops> (*)(const std::shared_ptr<Device>& device);
void register_ops(OpsFactory factory);

// For gw-info: one line per operation with the path it takes on this device.
std::string describe_paths(Ops& ops);

}  // namespace gangway
