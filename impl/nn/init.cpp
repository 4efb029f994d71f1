#include "base/philox.h"
#include "nn/module.h"

namespace gangway {
namespace {

// The filler writes host memory in the parameter's dtype; elsewhere or in another dtype it takes a detour.
void fill_from(Ops& ops, Stream& stream, const Parameter& parameter, int64_t first, int64_t last,
               const Tensor& out) {
  Init::Filler& filler = *parameter.init.filler;
  const bool host = ops.device().kind() == DeviceKind::cpu;
  const auto count = static_cast<size_t>(out.count());
  if (host && out.dtype() == parameter.dtype)
    return filler.fill(first, last, out.raw(), count, parameter.dtype);
  std::vector<char> rows(count * item_bytes(parameter.dtype));
  filler.fill(first, last, rows.data(), count, parameter.dtype);
  const Tensor plain = Tensor::allocate(ops.device().allocator(), parameter.dtype, out.shape());
  ops.device().copy(plain.raw(), rows.data(), rows.size(), stream);
  ops.cast(plain, out, stream);
  stream.synchronize();  // `rows` and `plain` end here
}

}  // namespace

void initialize_rows(Ops& ops, Stream& stream, const Parameter& parameter, uint64_t seed, int64_t first,
                     int64_t last, const Tensor& out) {
  GW_CHECK(first, >=, 0);
  GW_CHECK(last, <=, parameter.shape[0]);
  const int64_t row = parameter.shape.count_from(1);
  GW_CHECK(out.count(), ==, (last - first) * row);
  if (out.count() == 0) return;
  switch (parameter.init.kind) {
    case Init::Kind::zeros: return ops.fill(out, 0, stream);
    case Init::Kind::ones: return ops.fill(out, 1, stream);
    case Init::Kind::normal:
      return ops.fill_normal(out, philox_key(seed, parameter.full_name), static_cast<uint64_t>(first * row),
                             parameter.init.deviation, stream);
    case Init::Kind::fill:
      if (ops.device().kind() != DeviceKind::meta) fill_from(ops, stream, parameter, first, last, out);
      return;
  }
}

}  // namespace gangway
