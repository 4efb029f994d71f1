#include "nn/embedding.h"

#include "nn/gradient.h"

namespace gangway {
namespace {

constexpr int kIds = 0;  // slot of the frame

Tensor flat(const Tensor& ids) { return ids.reshape(Shape{ids.count()}); }

// Returns the scale as a number of the compute dtype, as in the models whose embeddings are scaled.
double rounded(double scale, DType dtype) {
  if (dtype == DType::f64) return scale;
  const auto single = static_cast<float>(scale);
  if (dtype == DType::bf16) return to_f32(to_bf16(single));
  return dtype == DType::f16 ? to_f32(to_f16(single)) : single;
}

}  // namespace

Embedding::Embedding(int64_t rows, int64_t dim, double deviation, double scale) : scale_(scale) {
  if (rows < 1 || dim < 1)
    fail(Code::invalid_argument, "Embedding: rows is ", rows, " and dim is ", dim, "; both are 1 or more");
  add_parameter("weight", Shape{rows, dim}, Init::normal(deviation));
  weight().rows_are_ids = true;
}

Parameter& Embedding::weight() const { return *parameters()[0]; }

std::vector<IdRule> Embedding::id_rules() const { return {{"token id", weight().shape[0]}}; }

Specs Embedding::check_forward(Context&, std::span<const Spec> inputs) {
  const Spec& ids = first_input(inputs, *this);
  check(ids);
  return {{spec_of(weight()).dtype, rows_of(ids.shape)}};
}

Values Embedding::forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) {
  const Tensor& ids = first_input(inputs, *this);
  const Tensor y = make_output(ctx, frame, value_of(weight()).dtype(), rows_of(ids.shape()));
  look_up(ctx, ids, y, frame);
  return {y};
}

void Embedding::look_up(Context& ctx, const Tensor& ids, const Tensor& y, Frame* frame) {
  check(spec_of(ids));
  ctx.ops.embedding({.table = value_of(weight()),
                     .ids = flat(ids),
                     .y = y.flatten2(),
                     .first_row = weight().compute_box().first[0],
                     .rows = weight().shape[0]},
                    ctx.stream);
  if (scale_ != 1) ctx.ops.scale(y, rounded(scale_, y.dtype()), ctx.stream);
  if (frame != nullptr) frame->slots().save(*this, kIds, ids);
}

Values Embedding::backward(Context& ctx, std::span<const Tensor> dy, Frame& frame) {
  if (!wants_gradient(weight())) return {Tensor()};
  Tensor scaled = first_gradient(dy, *this);
  if (scale_ != 1) {  // in memory of its own, because other weight tasks may still read dy
    scaled = frame.allocate_gradient(dy[0].dtype(), dy[0].shape());
    ctx.ops.cast(dy[0], scaled, ctx.stream);
    ctx.ops.scale(scaled, rounded(scale_, scaled.dtype()), ctx.stream);
  }
  frame.push_weight(*this, 0, scaled);
  return {Tensor()};
}

void Embedding::backward_weight(Context& ctx, Frame& frame, int, const Tensor& dy) {
  const Tensor ids = frame.slots().load(ctx, *this, kIds);
  ctx.ops.embedding_backward({.ids = flat(ids),
                              .dy = dy.flatten2(),
                              .dtable = gradient_to_add(ctx, weight()),
                              .first_row = weight().compute_box().first[0]},
                             ctx.stream);
}

Shape Embedding::rows_of(const Shape& ids) const {
  std::vector<int64_t> dims(ids.dims().begin(), ids.dims().end());
  dims.push_back(spec_of(weight()).shape[1]);
  return Shape(dims);
}

void Embedding::check(const Spec& ids) const {
  if (ids.dtype != DType::i64)
    fail(Code::invalid_argument, "Embedding ", full_name(), ": ids are ", ids.text(), ", not i64");
}

ModulePtr make_embedding(int64_t rows, int64_t dim, double deviation, double scale) {
  return std::make_shared<Embedding>(rows, dim, deviation, scale);
}

}  // namespace gangway
