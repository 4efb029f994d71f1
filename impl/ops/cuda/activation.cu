#include "ops/cuda/activations.h"
#include "ops/cuda/arrays.h"
#include "ops/cuda/families.h"

namespace gangway::cuda {
namespace {

template <typename S, int n>
__global__ void activation_kernel(Activation activation, Array x, Array y, int64_t count) {
  for_elements<n>(count, [&](auto m, int64_t at) {
    Pack<S, m()> pack = read<m(), S>(x, at);
    for (int i = 0; i < m(); ++i) pack.at[i] = activate(activation, pack.at[i]).value;
    write<m()>(y, at, pack);
  });
}

// Reads its inputs before it writes, because results may overwrite them.
template <typename S, int n>
__global__ void activation_backward_kernel(Activation activation, Array x, Array dy, Array dx, Array y,
                                           int64_t count) {
  for_elements<n>(count, [&](auto m, int64_t at) {
    Pack<S, m()> value = read<m(), S>(x, at), gradient = read<m(), S>(dy, at);
    for (int i = 0; i < m(); ++i) {
      const Activated<S> a = activate(activation, value.at[i]);
      value.at[i] = a.value;
      gradient.at[i] *= a.slope;
    }
    write<m()>(dx, at, gradient);
    if (y.data != nullptr) write<m()>(y, at, value);
  });
}

// Calls body(S{}, n) with the type of the computation, and the number of elements of a pack.
template <typename Body>
void with_packs_of(DType dtype, bool fit, Body&& body) {
  const auto with = [&](auto type) { with_packs<decltype(type)>(fit, [&](auto n) { body(type, n); }); };
  if (dtype == DType::f64) return with(double{});
  with(float{});
}

}  // namespace

void activation(const ActivationArgs& args, Stream& stream) {
  const int64_t count = args.x.count();
  if (count == 0) return;
  with_packs_of(args.x.dtype(), fits_packs({address(args.x), address(args.y)}), [&](auto type, auto n) {
    launch("activation", activation_kernel<decltype(type), n()>, flat_grid(count, n()), native(stream),
           args.activation, array_of(args.x), array_of(args.y), count);
  });
}

void activation_backward(const ActivationBackwardArgs& args, Stream& stream) {
  const int64_t count = args.x.count();
  if (count == 0) return;
  const bool fit = fits_packs({address(args.x), address(args.dy), address(args.dx), address(args.y)});
  with_packs_of(args.x.dtype(), fit, [&](auto type, auto n) {
    launch("activation_backward", activation_backward_kernel<decltype(type), n()>, flat_grid(count, n()),
           native(stream), args.activation, array_of(args.x), array_of(args.dy), array_of(args.dx),
           array_of(args.y), count);
  });
}

}  // namespace gangway::cuda
