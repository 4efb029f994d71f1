// oneDNN's matrix product. Only this file knows the differences between oneDNN's versions 2 and 3.
#pragma once

#include <dnnl.hpp>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace gangway::cpu {

// Returns whether oneDNN uses these instructions. A set has the bits of those that it contains.
inline bool onednn_has(dnnl::cpu_isa wanted) {
  static const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (has & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

// Returns nothing if oneDNN does not have the type.
inline std::optional<dnnl::memory::data_type> dnnl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return dnnl::memory::data_type::f32;
    case DType::bf16: return dnnl::memory::data_type::bf16;
    default: return std::nullopt;
  }
}

// Makes c = a b [+ bias]; `bias` may be null. Returns an empty descriptor if oneDNN has no such product for
// this processor, or only its slow reference loops.
inline dnnl::matmul::primitive_desc make_matmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                                const dnnl::memory::desc& b, const dnnl::memory::desc* bias,
                                                const dnnl::memory::desc& c,
                                                const dnnl::primitive_attr& attributes = {}) {
  using Product = dnnl::matmul::primitive_desc;
#if DNNL_VERSION_MAJOR >= 3
  const Product made = bias != nullptr ? Product(engine, a, b, *bias, c, attributes, true)
                                       : Product(engine, a, b, c, attributes, true);
#else
  using Wanted = dnnl::matmul::desc;
  const Product made(bias != nullptr ? Wanted(a, b, *bias, c) : Wanted(a, b, c), attributes, engine, true);
#endif
  return made && !std::string_view(made.impl_info_str()).starts_with("ref") ? made : Product();
}

}  // namespace gangway::cpu
