// The ops layer. Belongs here: operations on tensors of one device and their kernels. Does not belong here:
// modules (nn), anything that talks to another rank.
//
// Ops is the interface of the operations that compute on tensors. Each kind of device implements it once.
// Each operation takes an argument struct, in which an absent Tensor means "not wanted". Every `_backward`
// stands next to its forward.
//
// Conventions, for all operations:
// - Letters: T tokens (batch x sequence), D model width, F feed-forward width, V vocabulary, B batch, S
//   sequence, H query heads, G key/value heads, K head width.
// - Operations read the tensors that are named as inputs, and write outputs completely; "+=" says that the
//   operation adds.
// - Activations and weights share one dtype: f64, f32, bf16 or f16. Statistics (rstd, lse) and weight
//   gradients are f32, or f64 for f64. bf16 and f16 are computed in f32.
// - Rows may be strided (the last dim has stride 1) where the struct says so. All other tensors are
//   contiguous.
// - GW_CHECK checks shapes, since a wrong shape is the library's own mistake. Values are never checked.
// - A meta device computes nothing (ops/meta/meta_ops.h).
//
// Thread rule: one thread at a time; work is ordered on `stream`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "ops/random_rounding.h"
#include "tensor/stack.h"
#include "tensor/tensor.h"

namespace gangway {

// c = op(a) op(b) [+ bias] [+ c]. All are 2-d, and rows may be strided. a is [M, N'] or, transposed, [N', M].
// a and b have the same dtype. c may be f32 where a and b have 16 bits (weight gradients). Sums are in f32
// (f64 for f64).
struct GemmArgs {
  Tensor a, b, c;
  Tensor bias;  // [columns of c], dtype of a; added once
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // beta = 1
  // The same bits for every number of threads. Otherwise a CPU cuts the product into a slice for each thread,
  // and oneDNN's sums depend on the size of a slice.
  bool steady = false;
};

// Root mean square normalization of x + residual:
//   sum = x + residual,  y = sum * rstd * (offset + weight),  rstd = 1 / sqrt(mean(sum^2) + eps)
// Without a residual, sum is x and is not written. Tensors are [T, D]; rstd is [T]. `sum` may be x or
// residual (in place). Zhang and Sennrich, "Root mean square layer normalization", 2019.
//
// If each rank has a part of the row, `squares` [T] (dtype of rstd) has the sums of sum^2 of all parts
// (row_dot), and `width` is the width of the whole row. There is no residual then.
struct RmsNormArgs {
  Tensor x, residual, weight;
  Tensor y, sum, rstd;
  double eps = 1e-6;
  double offset = 0;  // 1: the weights count from 1, as in gemma
  Tensor squares = {};
  int64_t width = 0;
};
// dx = d/dsum of y . dy, plus dsum if present (the gradient from the residual stream); dweight +=. dx may be
// dsum (in place).
struct RmsNormBackwardArgs {
  Tensor dy, x /* the sum of the forward */, weight, rstd, dsum;
  Tensor dx, dweight /* f32 or f64 */;
  // If present (with dx): the operation recomputes the forward's y in the same pass. May be dy (in place).
  Tensor y;
  double offset = 0;
  // For a row in parts: the sums of x * dy * (offset + weight) of all parts [T], and the whole width.
  Tensor dots = {};
  int64_t width = 0;
};

// out[t] = sum over d of x[t, d] * y[t, d] * (offset + weight[d]); without a weight that factor is 1. x and
// y are [T, D] and may be the same; out is [T], f32 (f64 for f64).
struct RowDotArgs {
  Tensor x, y, weight, out;
  double offset = 0;
};

// Layer normalization of x + residual, as in GPT-2, with the same rules as RmsNormArgs:
//   sum = x + residual,  y = (sum - mean) * rstd * weight + bias,  rstd = 1 / sqrt(variance(sum) + eps)
// The variance is divided by D. mean and rstd are [T]. Ba, Kiros and Hinton, "Layer normalization", 2016.
struct LayerNormArgs {
  Tensor x, residual, weight, bias;
  Tensor y, sum, mean, rstd;
  double eps = 1e-5;
};
// As RmsNormBackwardArgs, with dbias +=.
struct LayerNormBackwardArgs {
  Tensor dy, x /* the sum of the forward */, weight, bias, mean, rstd, dsum;
  Tensor dx, dweight, dbias /* f32 or f64 */;
  Tensor y;
};

// Rotary embedding in the half-rotation form, in place or not. For each head vector with the halves x1 and
// x2:
//   y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin
// x and y are [T, heads * K] with strided rows. cos and sin are [positions, R / 2], f32 (f64 for f64), where
// R <= K: the first R elements of a head turn, the others are copied. Row t uses row positions[t % n] of the
// tables (i32 [n], n divides T), or row t % sequence if positions is absent. The backward is the rotation by
// the opposite angle, with `inverse` set.
struct RopeArgs {
  Tensor x, y, cos, sin, positions;
  int64_t heads = 1;
  int64_t sequence = 1;
  bool inverse = false;
};

enum class Activation : uint8_t { silu, gelu_tanh, gelu, relu, tanh };

// y = activation(gate) * up: SwiGLU, or GeGLU with gelu. All are [T, F]. Rows of gate, up and their gradients
// may be strided; y is contiguous.
struct SwigluArgs {
  Tensor gate, up, y;
  Activation activation = Activation::silu;
};
struct SwigluBackwardArgs {
  Tensor gate, up, dy, dgate, dup;  // dgate may be gate, dup may be up (in place)
  Tensor y;                         // if present: recomputed in the same pass; may be dy (in place)
  Activation activation = Activation::silu;
};

// y = activation(x), [T, F] contiguous, in place or not.
struct ActivationArgs {
  Tensor x, y;
  Activation activation = Activation::gelu_tanh;
};
struct ActivationBackwardArgs {
  Tensor x, dy, dx;  // dx may be x (in place)
  Tensor y;          // if present: recomputed in the same pass; may be dy (in place)
  Activation activation = Activation::gelu_tanh;
};

// y = keep ? x / (1 - probability) : 0, in place or not; the backward is the same operation on dy. Element
// (t, d) of x [T, D] is kept if the uniform number of (key, rows[t] * columns + first_column + d) is at least
// the probability: the bits depend on the element's place in the whole batch, not on which rank or microbatch
// has it. rows is i64 [T]; absent: row t is first_row + t.
struct DropoutArgs {
  Tensor x, y, rows;
  uint64_t key = 0;
  double probability = 0;
  int64_t first_row = 0, first_column = 0;
  int64_t columns = 0;  // of the whole row
};

// Attention of each head; query head h uses key/value head h / (H / G):
//   out = softmax(score + mask) v,  score = scale * q k^T,  or cap * tanh(scale * q k^T / cap) if cap > 0
// q is [B, Sq, H, K], k and v are [B, Sk, G, K], and out is like q; only the last dim must have stride 1. lse
// [B, H, Sq] is the log of the sum of exponentials (f32, f64 for f64). The score matrix is never stored.
//
// Which keys query i of a row sees: with first_key and end_key (i32 [B, Sq], or [1, Sq] for all rows alike)
// those with first_key[i] <= k_offset + j < end_key[i]; causal and q_offset are not read then. Neither
// decreases along a row, so that blocks of scores that no query sees are not computed. Without them, with
// `causal`, those with k_offset + j <= q_offset + i, or else all. A row that sees no key gives 0 and lse =
// -infinity.
//
// sinks [H] (dtype of q) gives every query of a head one more score, whose value is zero: it is part of lse.
// A row that sees no key then gives 0 and lse = its sink.
struct AttentionArgs {
  Tensor q, k, v, out, lse;
  double scale = 1;
  bool causal = true;
  int64_t q_offset = 0, k_offset = 0;
  Tensor first_key = {}, end_key = {};
  double cap = 0;
  Tensor sinks = {};
};
// Merges in place two results of the same queries over different keys (ring attention of context
// parallelism):
//   out += sigmoid(part_lse - lse) * (part - out),  lse = log(exp(lse) + exp(part_lse)).
// part [B, S, H, K] and part_lse are attention's results. out is like part, but f32 (f64 for f64), so that
// many parts are rounded only once. lse and part_lse are [B, H, S] with any strides. A row whose part_lse is
// -infinity is not changed.
struct AttentionMergeArgs {
  Tensor out, lse, part, part_lse;
};
// Recomputes the probabilities from lse (Dao, "FlashAttention-2", 2023). dq is like q; dk and dv are like k
// and v. They may be f32 where q, k and v have 16 bits. With accumulate: dq, dk and dv += (ring attention of
// context parallelism); they must be f32 or f64 then. dsinks [H] (f32, f64 for f64) += the gradient of
// `sinks`, which follows from lse, out and dout, not from the keys: in a ring, only one call passes dsinks.
struct AttentionBackwardArgs {
  Tensor q, k, v, out, lse, dout;
  Tensor dq, dk, dv;
  double scale = 1;
  bool causal = true;
  int64_t q_offset = 0, k_offset = 0;
  bool accumulate = false;
  Tensor first_key = {}, end_key = {};
  double cap = 0;
  Tensor sinks = {}, dsinks = {};
  Tensor workspace = {};  // u8, of Ops::attention_workspace_bytes; absent: the operation does with less
};

// y[t] = table[ids[t]]; ids is [T] i64, table is [V, D]. An id outside [0, V) gives a row of NaN, and no
// gradient. Code that takes ids from a caller refuses such ids first (nn/ids.h).
//
// If the table is split into parts, `table` holds rows [first_row, first_row + V) of `rows`. An id of another
// part gives a row of zeros, and no gradient, so that the sum of the parts' results is the whole table's
// result.
struct EmbeddingArgs {
  Tensor table, ids, y;
  int64_t first_row = 0;
  int64_t rows = 0;  // 0: `table` is the whole table
};
struct EmbeddingBackwardArgs {
  Tensor ids, dy, dtable;  // dtable +=, f32 or f64; added in the order of t, so that sums do not vary
  int64_t first_row = 0;   // the row of the table at which dtable begins
};

// The model head and cross-entropy, in chunks of tokens, so that the full logits never exist. For each t with
// labels[t] != ignore, in the order of t:
//   loss += -log softmax(x[t] w^T)[labels[t]],  weight += 1
// dx (written) and dw (+=) are the gradients of scale * loss. x is [T, D], w is [V, D], labels is [T] i64. A
// label outside [0, V) gives NaN. LossTerms says what else a loss has.
struct LossTerms {
  double cap = 0;  // above 0: logits become cap * tanh(logit / cap)
  // The weight of each token, [T] f32 (f64 for f64), which multiplies its loss and counts in `weight` in
  // place of 1. Weights may be negative or zero (preference losses).
  Tensor weights;
  double label_smoothing = 0;  // s: (1 - s) of the loss above + s times the mean of -log softmax over all ids
  double z_loss = 0;           // adds z * (log of the sum of exponentials)^2
  Tensor log_probs;  // [T] f32 (f64 for f64): if present, log softmax(..)[labels[t]]; 0 where ignored
};
struct HeadLossArgs {
  Tensor x, w, labels;
  Tensor loss, weight;        // f64 [1] each; absent: not wanted
  Tensor dx, dw;              // absent: evaluation
  double scale = 1;           // loss scale / N: the gradient of the loss
  bool dw_accumulate = true;  // false: dw is written (first use)
  int64_t ignore = -100;
  LossTerms terms = {};
};

// Cross-entropy of C tokens over a vocabulary that is split into W parts. It takes two operations. Between
// them, the ranks gather all parts' statistics, 3 C numbers for each part, so that they never gather logits.
//
// loss_part caps logits [C, V], f32 or f64, and replaces them by exp(logit - most), or, with a cap, by values
// that only loss_join of the same device reads. statistics is [3, C] f64: most (the row's maximum), the sum
// of exponentials, and the label's logit, or -infinity where labels[c] is not in [first_id, first_id + V).
// With label smoothing, `logit_sums` [C] f64 receives the sums of this part's capped logits.
struct LossPartArgs {
  Tensor logits, labels, statistics;
  int64_t first_id = 0;
  double cap = 0;
  Tensor logit_sums = {};
};
// loss_join takes statistics [W, 3, C] of all parts. For each c with labels[c] != ignore, in the order of c:
//   loss += -log softmax(logits)[labels[c]],  weight += 1
// It replaces what loss_part wrote to the logits of part `part` by their gradient of scale * loss. A label
// outside [0, ids) gives NaN.
struct LossJoinArgs {
  Tensor logits, labels, statistics;
  Tensor loss, weight;  // f64 [1] each; absent: not wanted
  int part = 0;
  int64_t first_id = 0;  // the first id of `part`
  int64_t ids = 0;       // the ids of all parts together
  double scale = 1;
  int64_t ignore = -100;
  LossTerms terms = {};
  Tensor logit_sums = {};  // [C] f64, of all parts; needed for label smoothing
};

// y /= max(sqrt(power), least). `power` (f64 [1]) is what norm_power has summed for p = 2. y is contiguous.
struct DivideByNormArgs {
  Tensor y, power;
  double least = 0;
};

// Adds a checksum of the bits of x (contiguous f32 or f64) to `sum` (i64 [1]), modulo 2^32:
//   sum = sum + words[i] * (m ^ (m >> 15) | 1) over all i,  m = (key + i) * 0x9E3779B1
// with x as words of 32 bits and all arithmetic modulo 2^32. The factors are odd, so that a change of any one
// word changes the sum. The order of the additions does not matter.
struct ChecksumArgs {
  Tensor x, sum;
  uint32_t key = 0;
};

// AdamW (Loshchilov and Hutter, 2019) over one flat shard:
//   g' = g * scale * clip;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
//   p -= lr * (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + weight_decay * p)
// lr, step, scale and clip are passed by value, since a stream may still hold the work while the caller
// prepares the next step. p is f32 or f64; g, m and v are f64, f32, bf16 (rounded at random) or f16 (rounded
// to nearest). `copy`, if present, receives p rounded to its dtype in the same pass.
struct OptimizerControl {
  double lr = 0;
  double scale = 1;
  double clip = 1;
  int64_t step = 0;  // counts from 1
};
struct AdamWArgs {
  Tensor p, g, m, v, copy;
  OptimizerControl control;
  RandomRounding rounding = {};
  double lr_scale = 1, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
// SGD:
//   g' = g * scale * clip + weight_decay * p
//   with momentum: m = momentum * m + g' (step 1: m = g'),  g' = nesterov ? g' + momentum * m : m
//   p -= lr * g'
struct SgdArgs {
  Tensor p, g, m, copy;
  OptimizerControl control;
  double lr_scale = 1, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

// Lion (Chen and others, 2023):
//   g' = g * scale * clip
//   p -= lr * (sign(b1 m + (1 - b1) g') + weight_decay * p); sign(0) is 0, sign(NaN) is NaN
//   m = b2 m + (1 - b2) g'
struct LionArgs {
  Tensor p, g, m, copy;  // m in bf16 is rounded at random
  OptimizerControl control;
  RandomRounding rounding = {};
  double lr_scale = 1, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
};

// Adafactor (Shazeer and Stern, 2018) over a piece g [B, R, C] of a gradient, in three operations, between
// which ranks sum what they have of the rows and columns. g' = g * g_factor.
//
// factor_sums: rows [B, R] and columns [B, C] (f64, each may be absent) += the sums of g'^2 over a row and
// over a column.
struct FactorSumsArgs {
  Tensor g, rows, columns;
  double g_factor = 1;
};
// The update u of a piece from the averages of the row means and the column means of g'^2, `rows` and
// `columns` (f32, or f64 for f64). `totals` [B] (f64) are sums of `rows` over all row_count rows:
//   v = rows columns / max(totals / row_count, least), without columns v = rows
//   u = g' / sqrt(max(v, least^2))
// adafactor_norm: squares (f64 [1]) += sum u^2.
struct AdafactorNormArgs {
  Tensor g, rows, columns, totals, squares;
  double g_factor = 1, least = 0;
  int64_t row_count = 1;
};
// adafactor, with the root mean squares of the whole tensor of `count` elements, rms(p) = sqrt(p_squares /
// count) and rms(u) = sqrt(squares / count):
//   p = p (1 - lr weight_decay) - max(eps, rms(p)) min(lr, 1 / sqrt(step)) / max(1, rms(u) / threshold) u
struct AdafactorArgs {
  Tensor p, copy, p_squares;
  AdafactorNormArgs update;
  OptimizerControl control;  // its scale and clip are part of update.g_factor
  double lr_scale = 1, weight_decay = 0, eps = 1e-3, threshold = 1;
  int64_t count = 1;
};

// AdamW whose averages have 8 bits, over rows of `columns` elements. Each row is cut into blocks of
// kCodeBlock elements, its last block may be shorter. m and v are codes (u8, as p), m_scale and v_scale (f32,
// [rows, ceil(columns / kCodeBlock)]) the largest magnitudes of the blocks: a code stands for
// signed_codes()[code] or unsigned_codes()[code] times the block's scale (ops/codes.h). The step of p is
// AdamW's, with averages that are rounded only after it, at random.
struct AdamW8bitArgs {
  Tensor p, g, m, v, m_scale, v_scale, copy;
  OptimizerControl control;
  RandomRounding rounding = {};
  double lr_scale = 1, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  int64_t columns = 1;
};

// The steps of optimizers, and what they need. Structs of elementwise steps share these names: p, g, copy,
// control, lr_scale and weight_decay, and m and v for what an optimizer keeps.
#define GANGWAY_OPTIMIZER_OPERATIONS(X) \
  X(adafactor, AdafactorArgs)           \
  X(adafactor_norm, AdafactorNormArgs)  \
  X(factor_sums, FactorSumsArgs)        \
  X(adamw, AdamWArgs)                   \
  X(adamw8bit, AdamW8bitArgs)           \
  X(lion, LionArgs)                     \
  X(sgd, SgdArgs)

// The list of operations whose arguments are one struct. Macros generate from it what is the same for all of
// them: the declarations of their checks, and the devices that only forward calls.
#define GANGWAY_OPERATIONS(X)                    \
  X(gemm, GemmArgs)                              \
  X(rmsnorm, RmsNormArgs)                        \
  X(rmsnorm_backward, RmsNormBackwardArgs)       \
  X(row_dot, RowDotArgs)                         \
  X(layernorm, LayerNormArgs)                    \
  X(layernorm_backward, LayerNormBackwardArgs)   \
  X(rope, RopeArgs)                              \
  X(swiglu, SwigluArgs)                          \
  X(swiglu_backward, SwigluBackwardArgs)         \
  X(activation, ActivationArgs)                  \
  X(activation_backward, ActivationBackwardArgs) \
  X(dropout, DropoutArgs)                        \
  X(attention, AttentionArgs)                    \
  X(attention_merge, AttentionMergeArgs)         \
  X(attention_backward, AttentionBackwardArgs)   \
  X(embedding, EmbeddingArgs)                    \
  X(embedding_backward, EmbeddingBackwardArgs)   \
  X(loss_part, LossPartArgs)                     \
  X(loss_join, LossJoinArgs)                     \
  X(divide_by_norm, DivideByNormArgs)            \
  X(checksum, ChecksumArgs)                      \
  GANGWAY_OPTIMIZER_OPERATIONS(X)

class Ops {
 public:
  virtual ~Ops() = default;
  virtual Device& device() = 0;

#define GANGWAY_OPERATION(name, Args) virtual void name(const Args& args, Stream& stream) = 0;
  GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
  virtual void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream& stream) = 0;
  // Returns the size of the workspace with which attention_backward is fastest. 0: it needs none.
  virtual size_t attention_workspace_bytes(const AttentionBackwardArgs&) { return 0; }

  // y = x, converted between f64, f32, bf16 and f16. Shapes are equal, strides are arbitrary. Between equal
  // dtypes of any kind it is a copy.
  virtual void cast(const Tensor& x, const Tensor& y, Stream& stream) = 0;
  virtual void fill(const Tensor& y, double value, Stream& stream) = 0;  // contiguous; floating or i64
  // y += factor * x. Both are contiguous; their dtypes may differ (f64, f32, bf16, f16).
  virtual void add(const Tensor& x, double factor, const Tensor& y, Stream& stream) = 0;
  virtual void scale(const Tensor& y, double factor, Stream& stream) = 0;
  // Adds the column sums of x [T, D] to y [D] (f32 or f64). For bias gradients.
  virtual void column_sum(const Tensor& x, const Tensor& y, Stream& stream) = 0;
  // out (f64 [1]) += sum |x|^p in a fixed order. For p = infinity: out = max(out, max |x|). x is contiguous
  // f64, f32, bf16 or f16.
  virtual void norm_power(const Tensor& x, double p, const Tensor& out, Stream& stream) = 0;
  // Writes rows of a parameter's initial values. Element i of the full row-major tensor is
  //   philox_normal(key, i) * deviation
  // rounded to y's dtype (f64, f32, bf16 or f16). y is contiguous; `first_element` is the index of its first
  // element.
  virtual void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation,
                           Stream& stream) = 0;
  // Writes to out (i64 [3]) the lowest and the highest of the ids [T] i64 that are not `ignore`, and their
  // number; {0, -1, 0} if there are none.
  virtual void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream) = 0;
};

// Makes the operations of a device: "cpu" (with the processor's best instruction set, capped by
// Config::cpu_isa), "meta" (shape checks only), "cuda" (from the loadable module) or a registered extension.
std::unique_ptr<Ops> make_ops(const std::shared_ptr<Device>& device);

// Registers the operations of DeviceKind::extension. Any thread may call it.
using OpsFactory = std::unique_ptr<Ops> (*)(const std::shared_ptr<Device>& device);
void register_ops(OpsFactory factory);

// Returns, for gw-info, one line for each operation with the implementation that it uses on this device.
std::string describe_paths(Ops& ops);

}  // namespace gangway
