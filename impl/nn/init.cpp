#include <algorithm>

#include "base/philox.h"
#include "nn/module.h"
#include "tensor/host_staging.h"

namespace gangway {
namespace {

// Elements of the buffer into which an initializer writes whole rows, when the box has only parts of the
// rows.
constexpr int64_t kPieceElements = 1 << 18;

// Fills whole rows [first, last) of dim 0. The initializer writes contiguous host memory in the parameter's
// dtype, so that other targets need a temporary tensor, a copy to the device or a cast.
void fill_rows(Ops& ops, Stream& stream, const Parameter& parameter, int64_t first, int64_t last,
               const Tensor& out) {
  Init::Initializer& initializer = *parameter.init.initializer;
  const bool in_place = out.dtype() == parameter.dtype && out.contiguous();
  const Tensor rows =
      in_place ? out : Tensor::allocate(ops.device().allocator(), parameter.dtype, out.shape());
  const HostStaging host(rows);
  initializer.fill(first, last, host.raw(), static_cast<size_t>(rows.count()), parameter.dtype);
  host.send(stream);
  if (!in_place) ops.cast(rows, out, stream);
}

// Fills a box that has only parts of the rows: the initializer writes whole rows, piece by piece, and the box
// is copied out.
void fill_parts(Ops& ops, Stream& stream, const Parameter& parameter, const Box& box, const Tensor& out) {
  const int64_t piece = std::max<int64_t>(1, kPieceElements / parameter.shape.count_from(1));
  for (int64_t row = 0; row < box.shape[0]; row += piece) {
    const int64_t rows = std::min(piece, box.shape[0] - row);
    Shape shape = parameter.shape;
    shape[0] = rows;
    const Tensor whole = Tensor::allocate(ops.device().allocator(), parameter.dtype, shape);
    fill_rows(ops, stream, parameter, box.first[0] + row, box.first[0] + row + rows, whole);
    Box columns = box;
    columns.first[0] = 0;
    columns.shape[0] = rows;
    ops.cast(slice(whole, columns), out.slice(0, row, row + rows), stream);
  }
}

void fill_from(Ops& ops, Stream& stream, const Parameter& parameter, const Box& box, const Tensor& out) {
  if (ops.device().kind() == DeviceKind::meta) return;
  if (box.shape.count_from(1) == parameter.shape.count_from(1))
    fill_rows(ops, stream, parameter, box.first[0], box.last(0), out);
  else
    fill_parts(ops, stream, parameter, box, out);
}

}  // namespace

void initialize_box(Ops& ops, Stream& stream, const Parameter& parameter, uint64_t seed, const Box& box,
                    const Tensor& out) {
  for (int d = 0; d < box.shape.rank(); ++d) {
    GW_CHECK(box.first[static_cast<size_t>(d)], >=, 0);
    GW_CHECK(box.last(d), <=, parameter.shape[d]);
  }
  GW_CHECK(out.count(), ==, box.shape.count());
  if (out.count() == 0) return;
  switch (parameter.init.kind) {
    case Init::Kind::zeros: return ops.fill(out, 0, stream);
    case Init::Kind::ones: return ops.fill(out, 1, stream);
    case Init::Kind::normal: {
      const Tensor flat = out.reshape(Shape{out.count()});
      const uint64_t key = philox_key(seed, parameter.full_name);
      return for_each_run(parameter.shape, box, [&](int64_t global, int64_t local, int64_t count) {
        ops.fill_normal(flat.slice(0, local, local + count), key, static_cast<uint64_t>(global),
                        parameter.init.deviation, stream);
      });
    }
    case Init::Kind::fill: return fill_from(ops, stream, parameter, box, out);
  }
}

}  // namespace gangway
