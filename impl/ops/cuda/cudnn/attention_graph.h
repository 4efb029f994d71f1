// Attention as plain data: what cuDNN is asked for, and which calls it is asked for at all. Nothing of a vendor is needed here,
// so tests read the data on any machine.
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

// [B, heads, S, K], as cuDNN orders the dims; strides in elements. lse has K = 1. An absent operand has no dims.
struct OperandLayout {
  bool present = false;
  DType dtype = DType::f32;
  std::array<int64_t, 4> dims{}, strides{};
  auto operator<=>(const OperandLayout&) const = default;
};

// One operation without its addresses: plans are kept by it.
struct AttentionGraph {
  std::array<OperandLayout, kOperands> operands;
  bool backward = false;
  bool causal = false;  // key j is seen by query i when j <= i
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
};
AttentionCall call_of(const AttentionArgs& args);
AttentionCall call_of(const AttentionBackwardArgs& args);

// Null: cuDNN is asked on a GPU of this architecture (80: sm_80). Else why the own kernels take the call.
const char* why_own_kernels(const AttentionCall& call, int architecture);
// The whole table, one reason a line.
std::string all_reasons(const char* indent);

// A plan that needs more than this is not used: cuDNN's deterministic backward may store scores there.
inline constexpr size_t kMostCudnnWorkspace = size_t{512} << 20;

}  // namespace gangway::cuda
