#include "ops/cuda/cudnn/attention_graph.h"

#include <algorithm>

namespace gangway::cuda {
namespace {

constexpr int64_t kAlignedElements = 8;  // 16 bytes of 16-bit elements, which cuDNN's kernels move at a time
constexpr int64_t kBackwardTile = 128;
constexpr int64_t kMostHeads = 65535;

// Gives each dim of one element the stride of a packed tensor, because cuDNN checks even strides that it
// never uses.
void pack_single_dims(OperandLayout& layout) {
  int64_t packed = 1;
  for (size_t d = 4; d-- > 0;) {
    if (layout.dims[d] == 1) layout.strides[d] = packed;
    packed = std::max(packed, layout.dims[d] * layout.strides[d]);
  }
}

// The layout of a tensor [B, S, heads, K], Gangway's order.
OperandLayout layout_of_heads(const Tensor& t) {
  if (!t) return {};
  OperandLayout layout = {true,
                          t.dtype(),
                          {t.dim(0), t.dim(2), t.dim(1), t.dim(3)},
                          {t.stride(0), t.stride(2), t.stride(1), t.stride(3)}};
  pack_single_dims(layout);
  return layout;
}

// The layout of a contiguous tensor [B, H, S].
OperandLayout layout_of_lse(const Tensor& t) {
  if (!t) return {};
  const int64_t heads = t.dim(1), rows = t.dim(2);
  return {true, t.dtype(), {t.dim(0), heads, rows, 1}, {heads * rows, rows, 1, 1}};
}

void put(AttentionCall& call, Operand operand, const Tensor& t) {
  call.graph[operand] = operand == Operand::lse ? layout_of_lse(t) : layout_of_heads(t);
  call.pointers[static_cast<size_t>(operand)] = t ? t.raw() : nullptr;
}

template <typename Args>
AttentionCall common_call(const Args& args) {
  AttentionCall call;
  put(call, Operand::q, args.q);
  put(call, Operand::k, args.k);
  put(call, Operand::v, args.v);
  put(call, Operand::out, args.out);
  put(call, Operand::lse, args.lse);
  call.graph.causal = args.causal;
  call.graph.scale = static_cast<float>(args.scale);
  if (args.causal) call.offset = args.q_offset - args.k_offset;
  call.ranges = static_cast<bool>(args.first_key);
  call.cap = args.cap > 0;
  call.sinks = static_cast<bool>(args.sinks);
  return call;
}

int64_t batch_of(const AttentionGraph& g) { return g[Operand::q].dims[0]; }
int64_t heads_of(const AttentionGraph& g) { return g[Operand::q].dims[1]; }
int64_t queries_of(const AttentionGraph& g) { return g[Operand::q].dims[2]; }
int64_t keys_of(const AttentionGraph& g) { return g[Operand::k].dims[2]; }
int64_t width_of(const AttentionGraph& g) { return g[Operand::q].dims[3]; }

bool is_strided_by_vectors(const OperandLayout& layout) {
  if (layout.strides[3] != 1) return false;
  for (size_t d = 0; d < 3; ++d)
    if (layout.dims[d] > 1 && (layout.strides[d] < 1 || layout.strides[d] % kAlignedElements != 0))
      return false;
  return true;
}

bool is_unaligned(const AttentionCall& call) {
  for (size_t o = 0; o < kOperands; ++o) {
    const OperandLayout& layout = call.graph.operands[o];
    if (!layout.present || o == static_cast<size_t>(Operand::lse)) continue;
    const auto address = reinterpret_cast<uintptr_t>(call.pointers[o]);
    if (address % (2 * kAlignedElements) != 0 || !is_strided_by_vectors(layout)) return true;
  }
  return false;
}

bool has_wide_gradients(const AttentionCall& call) {
  for (const Operand o : {Operand::dq, Operand::dk, Operand::dv})
    if (call.graph[o].present && call.graph[o].dtype != call.graph[Operand::q].dtype) return true;
  return false;
}

struct Reason {
  const char* words;
  bool (*holds)(const AttentionCall& call, int architecture);
};

// The first reason that holds is the answer. Two reasons avoid known faults of cuDNN's backward: it gave NaN
// where the last tile of keys was not full (issue 196678 of PyTorch, 160 of cudnn-frontend), and for single
// queries (issue 1072 of cudnn-frontend).
constexpr Reason kReasons[] = {
    {"the GPU is none of sm_8x, sm_90 and sm_10x",
     [](const AttentionCall&, int arch) { return arch < 80 || arch >= 110 || (arch > 90 && arch < 100); }},
    {"the dtype is neither bf16 nor f16",
     [](const AttentionCall& c, int) {
       const DType dtype = c.graph[Operand::q].dtype;
       return dtype != DType::bf16 && dtype != DType::f16;
     }},
    {"gradients are added to what is there", [](const AttentionCall& c, int) { return c.accumulate; }},
    {"key ranges limit what queries see (documents, windows)",
     [](const AttentionCall& c, int) { return c.ranges; }},
    {"scores have a cap", [](const AttentionCall& c, int) { return c.cap; }},
    {"heads have sinks", [](const AttentionCall& c, int) { return c.sinks; }},
    {"gradients are wider than the activations",
     [](const AttentionCall& c, int) { return has_wide_gradients(c); }},
    {"queries and keys of a causal call begin at different positions",
     [](const AttentionCall& c, int) { return c.offset != 0; }},
    {"the width of a head is no multiple of 8",
     [](const AttentionCall& c, int) { return width_of(c.graph) % kAlignedElements != 0; }},
    {"heads are wider than 128 (256 on sm_90)",
     [](const AttentionCall& c, int arch) { return width_of(c.graph) > (arch == 90 ? 256 : 128); }},
    {"there are fewer than 2 queries or keys",
     [](const AttentionCall& c, int) { return queries_of(c.graph) < 2 || keys_of(c.graph) < 2; }},
    {"a backward's numbers of queries and keys are no multiples of 128",
     [](const AttentionCall& c, int) {
       return c.graph.backward &&
              (queries_of(c.graph) % kBackwardTile != 0 || keys_of(c.graph) % kBackwardTile != 0);
     }},
    {"batch or heads are 0, or more than 65535",
     [](const AttentionCall& c, int) {
       return batch_of(c.graph) < 1 || heads_of(c.graph) < 1 || width_of(c.graph) < 1 ||
              batch_of(c.graph) > kMostHeads || heads_of(c.graph) > kMostHeads;
     }},
    {"an address or a stride is no multiple of 16 bytes",
     [](const AttentionCall& c, int) { return is_unaligned(c); }},
};

}  // namespace

const char* name(Operand operand) {
  constexpr const char* kNames[kOperands] = {"q", "k", "v", "out", "lse", "dout", "dq", "dk", "dv"};
  return kNames[static_cast<size_t>(operand)];
}

std::string AttentionGraph::text() const {
  const OperandLayout &q = (*this)[Operand::q], &k = (*this)[Operand::k];
  return gangway::text(backward ? "attention_backward " : "attention ", gangway::name(q.dtype), " ",
                       q.dims[2], " queries, ", k.dims[2], " keys, batch ", q.dims[0], ", heads ", q.dims[1],
                       "/", k.dims[1], " of width ", q.dims[3], causal ? ", causal" : ", full");
}

AttentionCall call_of(const AttentionArgs& args) { return common_call(args); }

AttentionCall call_of(const AttentionBackwardArgs& args) {
  AttentionCall call = common_call(args);
  call.graph.backward = true;
  call.accumulate = args.accumulate;
  put(call, Operand::dout, args.dout);
  put(call, Operand::dq, args.dq);
  put(call, Operand::dk, args.dk);
  put(call, Operand::dv, args.dv);
  return call;
}

const char* why_own_kernels(const AttentionCall& call, int architecture) {
  for (const Reason& reason : kReasons)
    if (reason.holds(call, architecture)) return reason.words;
  return nullptr;
}

std::string all_reasons(const char* indent) {
  std::string out;
  for (const Reason& reason : kReasons) out += std::string(indent) + reason.words + "\n";
  return out;
}

}  // namespace gangway::cuda
