#include "nn/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <utility>

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

// Llama 3: waves longer than the original sequences are stretched, short ones stay, with a smooth passage.
double llama3(double plain, const RopeOptions& o) {
  const auto original = static_cast<double>(o.original_positions);
  const double wavelength = 2 * std::numbers::pi / plain;
  if (wavelength > original / o.low_frequency_factor) return plain / o.factor;
  if (wavelength < original / o.high_frequency_factor) return plain;
  const double smooth =
      (original / wavelength - o.low_frequency_factor) / (o.high_frequency_factor - o.low_frequency_factor);
  return (1 - smooth) * plain / o.factor + smooth * plain;
}

// YaRN (Peng and others, 2023): between two pairs a ramp from the plain frequency to the divided one.
class YarnRamp {
 public:
  YarnRamp(const RopeOptions& o, int64_t width) : factor_(o.factor) {
    const auto pair_with = [&](double rotations) {
      return static_cast<double>(width) *
             std::log(static_cast<double>(o.original_positions) / (rotations * 2 * std::numbers::pi)) /
             (2 * std::log(o.theta));
    };
    first_ = pair_with(o.beta_fast);
    last_ = pair_with(o.beta_slow);
    if (o.truncate) {
      first_ = std::floor(first_);
      last_ = std::ceil(last_);
    }
    first_ = std::max(first_, 0.0);
    last_ = std::min(last_, static_cast<double>(width - 1));
    if (first_ == last_) last_ += 0.001;
  }
  double operator()(double plain, size_t pair) const {
    const double ramp = std::clamp((static_cast<double>(pair) - first_) / (last_ - first_), 0.0, 1.0);
    return plain / factor_ * ramp + plain * (1 - ramp);
  }

 private:
  double factor_, first_ = 0, last_ = 0;
};

void check_longrope(const RopeOptions& o, int64_t width) {
  const auto pairs = static_cast<size_t>(width / 2);
  for (const auto& [name, factors] :
       {std::pair("short_factor", &o.short_factors), std::pair("long_factor", &o.long_factors)}) {
    if (factors->size() != pairs)
      fail(Code::invalid_argument, "rotary: longrope's ", name, " has ", factors->size(),
           " numbers, wanted one for each of ", pairs, " pairs");
    for (const double factor : *factors)
      if (!(factor > 0))
        fail(Code::invalid_argument, "rotary: longrope's ", name, " has ", factor, ", which is not above 0");
  }
  if (o.original_positions < 2)
    fail(Code::invalid_argument, "rotary: longrope's original_max_position_embeddings is ",
         o.original_positions, ", below 2");
}

void check_scaling(const RopeOptions& o) {
  if (!(o.factor >= 1))
    fail(Code::invalid_argument, "rotary: rope_factor is ", o.factor,
         "; it must be 1, which is no scaling, or more");
  if (!(o.attention_factor >= 0))
    fail(Code::invalid_argument, "rotary: attention_factor is ", o.attention_factor, ", below 0");
  if (o.factor == 1) return;
  if (o.scaling == RopeScaling::llama3 &&
      (!(o.low_frequency_factor > 0) || !(o.high_frequency_factor > o.low_frequency_factor) ||
       o.original_positions < 1))
    fail(Code::invalid_argument, "rotary: low_freq_factor ", o.low_frequency_factor, ", high_freq_factor ",
         o.high_frequency_factor, ", original_max_position_embeddings ", o.original_positions,
         "; wanted: 0 < low < high and at least 1 position");
  if (o.scaling == RopeScaling::yarn &&
      (!(o.theta > 1) || !(o.beta_slow > 0) || !(o.beta_fast >= o.beta_slow) || o.original_positions < 1))
    fail(Code::invalid_argument, "rotary: yarn has theta ", o.theta, ", beta_slow ", o.beta_slow,
         ", beta_fast ", o.beta_fast, ", original_max_position_embeddings ", o.original_positions,
         "; wanted: theta above 1, 0 < slow <= fast and at least 1 position");
}

}  // namespace

int64_t rotary_width(const RopeOptions& o, int64_t head_dim) {
  return static_cast<int64_t>(static_cast<double>(head_dim) * o.partial);
}

std::vector<double> rope_frequencies(const RopeOptions& o, int64_t head_dim, bool long_sequence) {
  const int64_t width = rotary_width(o, head_dim);
  std::vector<double> frequencies(static_cast<size_t>(width / 2));
  std::optional<YarnRamp> ramp;
  if (o.scaling == RopeScaling::yarn && o.factor > 1) ramp.emplace(o, width);
  const auto scaled = [&](double plain, size_t pair) {
    switch (o.scaling) {
      case RopeScaling::llama3: return o.factor > 1 ? llama3(plain, o) : plain;
      case RopeScaling::linear: return plain / o.factor;
      case RopeScaling::yarn: return ramp ? (*ramp)(plain, pair) : plain;
      case RopeScaling::longrope: return plain / (long_sequence ? o.long_factors : o.short_factors).at(pair);
    }
    fail(Code::internal, "rotary: scaling ", static_cast<int>(o.scaling));
  };
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = scaled(std::pow(o.theta, -2.0 * static_cast<double>(i) / static_cast<double>(width)), i);
  return frequencies;
}

double rope_attention_factor(const RopeOptions& o) {
  if (o.attention_factor != 0) return o.attention_factor;
  if (!(o.factor > 1)) return 1;
  const double grown = std::log(o.factor);
  if (o.scaling == RopeScaling::longrope)
    return std::sqrt(1 + grown / std::log(static_cast<double>(o.original_positions)));
  if (o.scaling != RopeScaling::yarn) return 1;
  const auto at = [&](double scale) { return 0.1 * scale * grown + 1; };
  return o.mscale != 0 && o.mscale_all_dim != 0 ? at(o.mscale) / at(o.mscale_all_dim) : at(1);
}

ShortLength short_length(const RopeOptions& o) {
  return {o.scaling == RopeScaling::longrope ? o.original_positions : 0};
}

void add_options(const RopeOptions& o, CallSignature& signature) {
  signature.add("rope_theta", o.theta);
  signature.add("rope_factor", o.factor);
  signature.add("rope_low_frequency_factor", o.low_frequency_factor);
  signature.add("rope_high_frequency_factor", o.high_frequency_factor);
  signature.add("rope_original_positions", o.original_positions);
  signature.add("rope_scaling", o.scaling);
  signature.add("rope_partial", o.partial);
  signature.add("rope_attention_factor", o.attention_factor);
  if (o.scaling == RopeScaling::yarn) {
    signature.add("rope_beta_fast", o.beta_fast);
    signature.add("rope_beta_slow", o.beta_slow);
    signature.add("rope_mscale", o.mscale);
    signature.add("rope_mscale_all_dim", o.mscale_all_dim);
    signature.add("rope_truncate", o.truncate);
  }
  for (const double factor : o.short_factors) signature.add("rope_short_factor", factor);
  for (const double factor : o.long_factors) signature.add("rope_long_factor", factor);
}

RopeTable::RopeTable(const RopeOptions& o, int64_t head_dim) : options_(o), head_dim_(head_dim) {
  if (!(o.partial >= 0 && o.partial <= 1))
    fail(Code::invalid_argument, "rotary: partial_rotary_factor is ", o.partial, ", outside of 0 to 1");
  const int64_t width = rotary_width(o, head_dim);
  if (o.partial == 0) return;
  if (width < 2 || width % 2 != 0)
    fail(Code::invalid_argument, "rotary: head_dim is ", head_dim,
         o.partial == 1 ? "" : text(", of which ", width, " turn"), "; it must be even");
  if (!(o.theta > 0)) fail(Code::invalid_argument, "rotary: theta is ", o.theta, "; it must be above 0");
  check_scaling(o);
  if (o.scaling == RopeScaling::longrope) check_longrope(o, width);
}

Values RopeTable::made() const {
  Values all = alone_.made();
  all.push_back(table_.cos);
  all.push_back(table_.sin);
  return all;
}

RopeTable::Pair RopeTable::get(Context& ctx, DType compute, int64_t positions) {
  const DType dtype = statistics_dtype(compute);
  if (table_.cos && table_.cos.dtype() == dtype && table_.cos.dim(0) >= positions &&
      &table_.cos.device() == &ctx.ops.device())
    return table_;
  const auto pairs = static_cast<size_t>(rotary_width(options_, head_dim_) / 2);
  const Shape shape{positions, static_cast<int64_t>(pairs)};
  table_.cos = Tensor::allocate(ctx.ops.device().allocator(), dtype, shape);
  table_.sin = Tensor::allocate(ctx.ops.device().allocator(), dtype, shape);
  if (on_meta(ctx)) return table_;
  const std::vector<double> of_short = rope_frequencies(options_, head_dim_);
  const int64_t most = short_length(options_).value,
                shorts = most == 0 ? positions : std::min(positions, most);
  const std::vector<double> of_long =
      shorts == positions ? of_short : rope_frequencies(options_, head_dim_, true);
  const double factor = rope_attention_factor(options_);
  std::vector<double> cosines, sines;
  for (int64_t row = 0; row < positions; ++row) {
    const bool is_long = row >= shorts;
    const auto position = static_cast<double>(is_long ? row - shorts : row);
    for (const double frequency : is_long ? of_long : of_short) {
      cosines.push_back(factor * std::cos(position * frequency));
      sines.push_back(factor * std::sin(position * frequency));
    }
  }
  upload(ctx, cosines, table_.cos);
  upload(ctx, sines, table_.sin);
  return table_;
}

}  // namespace gangway
