#include "train/sequence_parts.h"

#include "parallel/context/balance.h"

namespace gangway {
namespace {

int degree(Model& model) { return model.gangs().mesh().degree(Axis::cp); }

Tensor allocate(Model& model, DType dtype, const Shape& shape) {
  return Tensor::allocate(model.device().allocator(), dtype, shape);
}

// Later work of `stream` comes after the collective.
void run(Model& model, const Collective& record, Stream& stream) {
  const WorkPtr work = model.gangs().cp()->run(Channel::cp, record, &stream);
  work->order(stream);
  work->order_input(stream);
}

}  // namespace

int64_t part_tokens(Model& model, std::span<const Spec> values, const char* name) {
  const int cp = degree(model);
  if (values.empty() || values[0].shape.rank() < 2)
    fail(Code::invalid_argument, name,
         values.empty() ? std::string(" is empty") : "[0] is " + values[0].text(), "; with cp ", cp,
         " its dim 1 is the sequence that ranks share");
  const int64_t tokens = values[0].shape[1];
  const DecoderOptions* const decoder = decoder_options(model.root());
  if (decoder != nullptr) check_sequence_length(*decoder, tokens, text(name, "[0]").c_str());
  check_sequence(tokens, cp);
  for (const Spec& value : values)
    if (value.shape.rank() > 1 && value.shape[1] != tokens)
      fail(Code::invalid_argument, "one of the tensors is ", value.text(), ", but ", name,
           "[0] has sequences of ", tokens, " tokens; with cp ", cp, " all are split along dim 1");
  return tokens / cp;
}

bool is_part(const Shape& shape, int64_t tokens) { return shape.rank() > 1 && shape[1] == tokens; }

Shape part_shape(Model& model, const Shape& whole) {
  Shape part = whole;
  if (part.rank() > 1) part[1] /= degree(model);
  return part;
}

void take_part(Model& model, const Tensor& whole, const Tensor& part, Stream& stream) {
  if (whole.rank() < 2) return model.ops().cast(whole, part, stream);
  split_sequence(model.ops(), whole, part, 1, model.gangs().coordinate(Axis::cp), degree(model), stream);
}

Tensor whole_value(Model& model, const Tensor& part, Stream& stream) {
  Shape shape = part.shape();
  if (shape.rank() > 1) shape[1] *= degree(model);
  const Tensor whole = allocate(model, part.dtype(), shape);
  const StackScope scope(model.temporaries());
  const int64_t count = part.count();
  const Tensor parts = model.temporaries().allocate(part.dtype(), Shape{degree(model), count});
  const Tensor own = model.temporaries().allocate(part.dtype(), part.shape());
  model.ops().cast(part, own, stream);  // a result may be strided, or lie in a frame
  Collective record;
  record.op = CollectiveOp::all_gather;
  record.in = own.raw();
  record.out = parts.raw();
  record.count = static_cast<size_t>(count);
  record.dtype = part.dtype();
  run(model, record, stream);
  for (int r = 0; r < degree(model); ++r)
    join_sequence(model.ops(), parts.slice(0, r, r + 1).reshape(part.shape()), whole, 1, r, degree(model),
                  stream);
  return whole;
}

Tensor sum_of_parts(Model& model, const Tensor& value, Stream& stream) {
  const Tensor sum = allocate(model, value.dtype(), value.shape());
  model.ops().cast(value, sum, stream);
  Collective record;
  record.op = CollectiveOp::all_reduce;
  record.reduce = Reduce::sum;
  record.in = sum.raw();
  record.out = sum.raw();
  record.count = static_cast<size_t>(sum.count());
  record.dtype = sum.dtype();
  run(model, record, stream);
  return sum;
}

}  // namespace gangway
