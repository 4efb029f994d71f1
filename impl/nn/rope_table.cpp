#include "nn/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/gradient.h"
#include "tensor/host_staging.h"

namespace gangway {
namespace {

template <typename T>
void upload(Context& ctx, const std::vector<double>& values, const Tensor& to) {
  const HostStaging host(to);
  std::transform(values.begin(), values.end(), host.data<T>(), [](double x) { return static_cast<T>(x); });
  host.send(ctx.stream);
}

void upload(Context& ctx, const std::vector<double>& values, const Tensor& to) {
  if (to.dtype() == DType::f64)
    upload<double>(ctx, values, to);
  else
    upload<float>(ctx, values, to);
}

}  // namespace

std::vector<double> rope_frequencies(const RopeOptions& o, int64_t head_dim) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = std::pow(o.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    frequencies[i] = plain;
    if (o.factor == 1) continue;
    const auto original = static_cast<double>(o.original_positions);
    const double wavelength = 2 * std::numbers::pi / plain;
    if (wavelength > original / o.low_frequency_factor) {
      frequencies[i] = plain / o.factor;
    } else if (wavelength >= original / o.high_frequency_factor) {
      const double smooth = (original / wavelength - o.low_frequency_factor) /
                            (o.high_frequency_factor - o.low_frequency_factor);
      frequencies[i] = (1 - smooth) * plain / o.factor + smooth * plain;
    }
  }
  return frequencies;
}

RopeTable::RopeTable(const RopeOptions& o, int64_t head_dim) : options_(o), head_dim_(head_dim) {
  if (head_dim < 2 || head_dim % 2 != 0)
    fail(Code::invalid_argument, "rotary: head_dim is ", head_dim, "; it must be even");
  if (!(o.factor >= 1))
    fail(Code::invalid_argument, "rotary: rope_factor is ", o.factor,
         "; it must be 1, which is no scaling, or more");
  if (!(o.theta > 0)) fail(Code::invalid_argument, "rotary: theta is ", o.theta, "; it must be above 0");
  if (o.factor > 1 && (!(o.low_frequency_factor > 0) || !(o.high_frequency_factor > o.low_frequency_factor) ||
                       o.original_positions < 1))
    fail(Code::invalid_argument, "rotary: low_freq_factor ", o.low_frequency_factor, ", high_freq_factor ",
         o.high_frequency_factor, ", original_max_position_embeddings ", o.original_positions,
         "; wanted: 0 < low < high and at least 1 position");
}

RopeTable::Pair RopeTable::get(Context& ctx, DType compute, int64_t positions) {
  const DType dtype = statistics_dtype(compute);
  if (tables_.cos && tables_.cos.dtype() == dtype && tables_.cos.dim(0) >= positions &&
      &tables_.cos.device() == &ctx.ops.device())
    return tables_;
  if (frequencies_.empty()) frequencies_ = rope_frequencies(options_, head_dim_);
  const size_t pairs = frequencies_.size();
  const Shape shape{positions, static_cast<int64_t>(pairs)};
  tables_.cos = Tensor::allocate(ctx.ops.device().allocator(), dtype, shape);
  tables_.sin = Tensor::allocate(ctx.ops.device().allocator(), dtype, shape);
  if (on_meta(ctx)) return tables_;
  std::vector<double> cosines(static_cast<size_t>(positions) * pairs), sines(cosines.size());
  for (size_t at = 0; at < cosines.size(); ++at) {
    const double angle = static_cast<double>(at / pairs) * frequencies_[at % pairs];
    cosines[at] = std::cos(angle);
    sines[at] = std::sin(angle);
  }
  upload(ctx, cosines, tables_.cos);
  upload(ctx, sines, tables_.sin);
  return tables_;
}

}  // namespace gangway
