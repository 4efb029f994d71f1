// Attention as plain data: the description of a call for cuDNN, and the table of calls that do not go to
// cuDNN. It needs no vendor's header, so tests read the data on any machine.
//
// Thread rule: pure functions.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/ops.h"

namespace gangway::cuda {

enum class Operand { q, k, v, out, lse, dout, dq, dk, dv };
inline constexpr size_t kOperands = 9;
const char* name(Operand operand);

// Dims are [B, heads, S, K], in cuDNN's order. Strides are in elements. lse has K = 1. An absent operand has
// no dims.
struct OperandLayout {
  bool present = false;
  DType dtype = DType::f32;
  std::array<int64_t, 4> dims{}, strides{};
  auto operator<=>(const OperandLayout&) const = default;
};

// One operation without its addresses. It is the key of the cache of plans.
struct AttentionGraph {
  std::array<OperandLayout, kOperands> operands;
  bool backward = false;
  bool causal = false;  // query i sees key j if j <= i
  float scale = 1;
  auto operator<=>(const AttentionGraph&) const = default;
  const OperandLayout& operator[](Operand o) const { return operands[static_cast<size_t>(o)]; }
  OperandLayout& operator[](Operand o) { return operands[static_cast<size_t>(o)]; }
  std::string text() const;
};

using AttentionPointers = std::array<void*, kOperands>;  // null: absent

struct AttentionCall {
  AttentionGraph graph;
  AttentionPointers pointers{};
  int64_t offset = 0;  // q_offset - k_offset of a causal call
  bool accumulate = false;
  bool ranges = false, cap = false, sinks = false;  // as in AttentionArgs
};
AttentionCall call_of(const AttentionArgs& args);
AttentionCall call_of(const AttentionBackwardArgs& args);

// Returns null if cuDNN takes the call on a GPU of this architecture (80: sm_80). Otherwise it returns why
// the own kernels compute the call.
const char* why_own_kernels(const AttentionCall& call, int architecture);
// Returns all reasons of the table, one in each line.
std::string all_reasons(const char* indent);

}  // namespace gangway::cuda
