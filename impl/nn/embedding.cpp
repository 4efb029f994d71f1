#include "nn/gradient.h"
#include "nn/layers.h"

namespace gangway {
namespace {

constexpr int kIds = 0;  // slot

class Embedding final : public Module {
 public:
  Embedding(int64_t rows, int64_t dim, double deviation) {
    if (rows < 1 || dim < 1)
      fail(Code::invalid_argument, "Embedding: rows is ", rows, " and dim is ", dim, "; both are 1 or more");
    add_parameter("weight", Shape{rows, dim}, Init::normal(deviation));
  }

  const char* kind() const override { return "Embedding"; }
  bool is_linear() const override { return true; }
  std::vector<IdRule> id_rules() const override { return {{"token id", parameters()[0]->shape[0]}}; }

  Specs check_forward(Context&, std::span<const Spec> inputs) override {
    const Spec& ids = first_input(inputs, *this);
    check(ids);
    return {{spec_of(*parameters()[0]).dtype, rows_of(ids.shape)}};
  }

  Values forward(Context& ctx, std::span<const Tensor> inputs, Frame* frame) override {
    const Tensor& ids = first_input(inputs, *this);
    const Tensor& table = value_of(*parameters()[0]);
    check(spec_of(ids));
    const Tensor y = make_output(ctx, frame, table.dtype(), rows_of(ids.shape()));
    ctx.ops.embedding({.table = table, .ids = flat(ids), .y = y.flatten2()}, ctx.stream);
    if (frame != nullptr) frame->save(*this, kIds, ids);
    return {y};
  }

  Values backward(Context&, std::span<const Tensor> dy, Frame& frame) override {
    if (wants_gradient(*parameters()[0])) frame.push_weight(*this, 0, first_gradient(dy, *this));
    return {Tensor()};
  }

  void backward_weight(Context& ctx, Frame& frame, int, const Tensor& dy) override {
    const Tensor ids = frame.load(ctx, *this, kIds);
    ctx.ops.embedding_backward(
        {.ids = flat(ids), .dy = dy.flatten2(), .dtable = gradient_to_add(ctx, *parameters()[0])},
        ctx.stream);
  }

 private:
  static Tensor flat(const Tensor& ids) { return ids.reshape(Shape{ids.count()}); }

  // One row of the table for each id.
  Shape rows_of(const Shape& ids) const {
    std::vector<int64_t> dims(ids.dims().begin(), ids.dims().end());
    dims.push_back(spec_of(*parameters()[0]).shape[1]);
    return Shape(dims);
  }

  void check(const Spec& ids) const {
    if (ids.dtype != DType::i64)
      fail(Code::invalid_argument, "Embedding ", full_name(), ": ids are ", ids.text(), ", not i64");
  }
};

}  // namespace

ModulePtr make_embedding(int64_t rows, int64_t dim, double deviation) {
  return std::make_shared<Embedding>(rows, dim, deviation);
}

}  // namespace gangway
