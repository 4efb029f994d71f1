#include "parallel/tensor/coded_gather.h"

#include <optional>

#include "nn/gradient.h"

namespace gangway {
namespace {

using Operand = Fp8Products::Operand;

enum Slot : int { kPart, kScale };
enum Made : int { kCodes, kColumnScales };  // indices of recompute()
constexpr DType kDtype = DType::f8_e4m3;    // of the codes of an input

// A strided copy takes one element at a time. So codes move in words where a part has whole ones in a row.
constexpr int64_t kWord = 8;
Shape in_words(const Shape& shape) { return with_last(shape, shape.back() / kWord); }
Tensor in_words(const Tensor& codes) {
  return Tensor(codes.buffer(), codes.byte_offset(), DType::i64, in_words(codes.shape()));
}

// Returns the whole shape of parts that `gather` moves in words if `words`.
Shape gathered_shape(Redistribute& gather, const Shape& part, bool words) {
  const Shape sent = words ? in_words(part) : part;
  const Shape whole = gather.forward_plan(sent)->after;
  return words ? with_last(whole, whole.back() * kWord) : whole;
}

class GatheredCodes final : public CodedInput {
 public:
  GatheredCodes(Operand operand, Operand transposed)
      : CodedInput(std::move(operand), std::move(transposed)) {}

  void start_scales(Context& ctx, std::shared_ptr<Redistribute> gather, const Tensor& part,
                    const Tensor& whole) {
    gather_ = std::move(gather);
    scales_.emplace(gather_->start_forward(ctx, part, whole));
  }
  void finish_scales(Context& ctx) {
    if (scales_ && scales_->travels()) gather_->finish(ctx, *scales_);
  }
  void start_chunks(Context& ctx, const ChunkedMove& chunks, const Tensor& part, const Tensor& whole) {
    whole_ = whole;
    chunks_.emplace(ctx, chunks, part, whole);
  }

  bool holds(const Tensor& x) const override { return chunks_ && chunks_->holds(whole_) && is(x); }
  std::vector<RowRange> next(Context& ctx) override {
    finish_scales(ctx);
    return chunks_ ? chunks_->next(ctx) : std::vector<RowRange>();
  }

 private:
  std::shared_ptr<Redistribute> gather_;
  std::optional<Redistribute::Started> scales_;
  Tensor whole_;
  std::optional<ArrivingSequence> chunks_;
};

// Announces the transposed codes, and saves what they are made of.
Operand announced(Context& ctx, const Operand& all, bool rows, const Tensor& part, Frame* frame,
                  Module& producer) {
  if (frame == nullptr) return {};
  const int64_t tokens = all.codes.dim(0), inputs = all.codes.dim(1);
  const Operand transposed{all.codes.reshape({inputs, tokens}),
                           rows ? ctx.temporaries.allocate(DType::f32, {inputs}) : all.scale};
  SavedSlots& slots = frame->slots();
  slots.recomputable(transposed.codes, producer, kCodes, RecomputeWhen::when_loaded);
  slots.save(producer, kPart, part);
  if (rows)
    slots.recomputable(transposed.scale, producer, kColumnScales, RecomputeWhen::when_loaded);
  else
    slots.save(producer, kScale, all.scale);
  return transposed;
}

}  // namespace

std::unique_ptr<CodedInput> CodedGather::start(Context& ctx, const std::vector<Linear*>& layers,
                                               const Tensor& part, const ChunkedMove* chunks, Frame* frame,
                                               Module& producer) {
  Fp8Products& products = *layers.front()->fp8();
  for (const Linear* layer : layers) layer->fp8()->share_inputs(products);
  const Tensor part_TI = part.flatten2();
  const bool rows = products.has_scales_of_rows(), words = part.dim(-1) % kWord == 0;
  const Shape whole = gathered_shape(*codes_, part.shape(), words);
  // Allocated before the scope opens, in which the gather takes temporaries.
  const Operand all{ctx.temporaries.allocate(kDtype, {whole[0] * whole[1], whole[2]}),
                    rows ? ctx.temporaries.allocate(DType::f32, {whole[0] * whole[1]})
                         : make_output(ctx, frame, DType::f32, Shape{1})};
  auto gathered = std::make_unique<GatheredCodes>(all, announced(ctx, all, rows, part, frame, producer));
  std::optional<StackScope> scope;
  if (chunks == nullptr) scope.emplace(ctx.temporaries);
  const Operand own{ctx.temporaries.allocate(kDtype, part_TI.shape()),
                    rows ? ctx.temporaries.allocate(DType::f32, {part_TI.dim(0)}) : all.scale};
  products.input_part(ctx, part_TI, *join_, own);
  if (rows)
    gathered->start_scales(ctx, scales_, own.scale.reshape(with_last(part.shape(), 1)),
                           all.scale.reshape(with_last(whole, 1)));
  const Tensor mine = own.codes.reshape(part.shape()), everyones = all.codes.reshape(whole);
  const Tensor from = words ? in_words(mine) : mine, to = words ? in_words(everyones) : everyones;
  if (chunks != nullptr) {
    gathered->start_chunks(ctx, *chunks, from, to);
  } else {
    Redistribute::Started codes = codes_->start_forward(ctx, from, to);
    gathered->finish_scales(ctx);
    codes_->finish(ctx, codes);
  }
  return gathered;
}

Tensor CodedGather::recompute(Context& ctx, Frame& frame, int index, const Fp8Products& products,
                              Module& producer) {
  const bool rows = products.has_scales_of_rows();
  const Tensor part = frame.slots().load(ctx, producer, kPart);
  const Shape own_IBs{part.dim(2), part.dim(0), part.dim(1)};
  const bool words = own_IBs.back() % kWord == 0;
  const Shape whole = gathered_shape(*columns_, own_IBs, words);
  const Operand all{frame.allocate_gradient(kDtype, whole),
                    rows ? frame.allocate_gradient(DType::f32, Shape{whole[0]})
                         : frame.slots().load(ctx, producer, kScale)};
  {
    const StackScope scope(ctx.temporaries);
    const Tensor own = ctx.temporaries.allocate(kDtype, own_IBs);
    products.transposed_part(ctx, part.flatten2(), *join_,
                             {own.reshape({own_IBs[0], own_IBs[1] * own_IBs[2]}), all.scale});
    Redistribute::Started codes =
        columns_->start_forward(ctx, words ? in_words(own) : own, words ? in_words(all.codes) : all.codes);
    columns_->finish(ctx, codes);
  }
  if (rows) {
    const bool wants_codes = index == kCodes;
    frame.slots().set_recomputed(producer, wants_codes ? kColumnScales : kCodes,
                                 wants_codes ? all.scale : all.codes);
  }
  return index == kCodes ? all.codes : all.scale;
}

}  // namespace gangway
