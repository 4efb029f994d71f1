#include "checkpoint/run/base_hash.h"

#include <xxhash.h>

#include <cstring>

#include "base/error.h"
#include "checkpoint/pieces.h"
#include "checkpoint/run/host_copy.h"
#include "checkpoint/writing_rank.h"
#include "gang/agreement.h"
#include "nn/lora.h"

namespace gangway {
namespace {

// The bits of an element's value, which are equal in all dtypes that hold the value.
template <typename T>
uint64_t bits_of(const void* elements, int64_t i) {
  T element;
  std::memcpy(&element, static_cast<const char*>(elements) + static_cast<size_t>(i) * sizeof element,
              sizeof element);
  double value = 0;
  if constexpr (std::is_floating_point_v<T>)
    value = static_cast<double>(element);
  else
    value = static_cast<double>(to_f32(element));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

// Ranks hold different parts, so the hash is a sum over elements, of which each knows its place.
template <typename T>
uint64_t sum_of(const Shape& whole, const Box& box, const void* data, uint64_t key) {
  uint64_t sum = 0;
  for_each_run(whole, box, [&](int64_t global, int64_t local, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      sum += mixed(bits_of<T>(data, local + i) + mixed(key + static_cast<uint64_t>(global + i)));
  });
  return sum;
}

uint64_t sum_of(DType dtype, const Shape& whole, const Box& box, const void* data, uint64_t key) {
  switch (dtype) {
    case DType::f64: return sum_of<double>(whole, box, data, key);
    case DType::f32: return sum_of<float>(whole, box, data, key);
    case DType::bf16: return sum_of<bf16_t>(whole, box, data, key);
    case DType::f16: return sum_of<f16_t>(whole, box, data, key);
    default: fail(Code::internal, "base hash: a master is ", name(dtype));
  }
}

uint64_t sum_of_rank(Model& model) {
  uint64_t sum = 0;
  RowBlocks blocks;
  for (const NamedParameter& named : model.inspect().parameters()) {
    const Parameter& p = *named.parameter;
    if (is_adapter(p) || !p.listed || !p.shard || p.shard.count() == 0 ||
        !writes_rows(p.layout, model.gangs()))
      continue;
    const uint64_t key = XXH3_64bits(named.name.data(), named.name.size());
    blocks.each({0, named.name, p.dtype, p.box(), p.shard, &model},
                [&](const Box& box, const void* data) { sum += sum_of(p.dtype, p.shape, box, data, key); });
  }
  return sum;
}

}  // namespace

uint64_t base_hash(Model& model) {
  std::optional<uint64_t>& known = model.origin().base_hash;
  if (known) return *known;
  uint64_t sum = 0;
  const std::string own = std::to_string(sum_of_rank(model));
  for (const std::string& of_rank : model.gangs().root()->agreement().all_gather_bytes(Channel::control, own))
    sum += std::stoull(of_rank);
  known = sum;
  return sum;
}

}  // namespace gangway
