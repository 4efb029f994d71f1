#include "nn/coded_input.h"

#include <algorithm>

namespace gangway {

CodedInput* CodedInput::of(const Context& ctx, const Tensor& x) {
  auto* const coded = dynamic_cast<CodedInput*>(ctx.arriving);
  return coded != nullptr && coded->is(x) ? coded : nullptr;
}

bool CodedInput::is(const Tensor& x) const {
  const Tensor& codes = operand_.codes;
  return x.dtype() == codes.dtype() && x.buffer() == codes.buffer() &&
         x.byte_offset() == codes.byte_offset() && x.count() == codes.count();
}

std::vector<Linear*> layers_that_share_codes(Module& module) {
  std::vector<Linear*> layers;
  const auto takes_codes = [&](Module& reader) {
    auto* const linear = dynamic_cast<Linear*>(&reader);
    if (linear == nullptr || linear->fp8() == nullptr || linear->lora() != nullptr) return false;
    layers.push_back(linear);
    return linear->fp8()->makes_codes_of(*layers.front()->fp8());
  };
  const auto has_input = [](const std::vector<size_t>& values) {
    return std::find(values.begin(), values.end(), DataFlow::kInput) != values.end();
  };
  if (dynamic_cast<Linear*>(&module) != nullptr) {
    takes_codes(module);
    return layers;
  }
  const std::optional<DataFlow> flow = module.data_flow();
  if (!flow || flow->is_nonlinear || has_input(flow->output)) return {};
  for (const DataFlow::Step& step : flow->steps)
    if (has_input(step.reads) && (step.reads.size() != 1 || !takes_codes(module.child(step.child))))
      return {};
  return layers;
}

}  // namespace gangway
