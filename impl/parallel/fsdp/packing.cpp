#include "parallel/fsdp/packing.h"

#include <algorithm>

#include "nn/gradient.h"

namespace gangway {
namespace {

constexpr size_t kPackedAlign = 64;
constexpr DType kNoDType = DType{};

// Reserves `bytes` at the end of a buffer of which `used` bytes are taken, and returns their offset.
size_t take(size_t& used, size_t bytes) {
  const size_t at = used;
  if (__builtin_add_overflow(used, (bytes + kPackedAlign - 1) / kPackedAlign * kPackedAlign, &used))
    fail(Code::out_of_memory, "parameters of a parameter group take ", at, " bytes and ", bytes,
         " more, which no address space holds");
  return at;
}

void place(PackedParameter& p, GroupBytes& bytes) {
  const size_t own = p.piece_bytes(p.compute);
  if (p.has_copy()) p.master_at = take(bytes.masters, p.piece_bytes(p.master));
  p.own_at = take(bytes.own, own);
  take(p.has_copy() ? bytes.own_copies : bytes.own_masters, own);
  p.full_at = take(bytes.full, p.full_bytes(p.compute));
  p.has_gradient = wants_gradient(*p.parameter);
  if (!p.has_gradient) return;
  p.gradient_at = take(bytes.gradients, p.full_bytes(p.gradient));
  p.reduce_at = take(bytes.reduce_buffers, p.full_bytes(p.reduce_dtype));
  p.shard_gradient_at = take(bytes.shard_gradients, p.piece_bytes(p.gradient));
  p.reduce_output_at = take(bytes.reduce_outputs, p.piece_bytes(p.reduce_dtype));
}

void split(Parameter& p, const std::string& axis, int64_t rows, int ranks, int rank) {
  if (ranks == 1) return;
  Placement split = Placement::shard(axis, 0, ceil_bounds(rows, ranks));
  split.at_rest = true;
  p.layout.push_back(std::move(split));
  p.place.push_back(rank);
}

}  // namespace

DType compute_dtype(const ShardOptions& options, const std::string& name, DType master) {
  DType dtype = options.param_dtype == kNoDType ? master : options.param_dtype;
  for (const DtypeRule& rule : options.dtype_rules)
    if (path_matches(rule.pattern, name)) dtype = rule.dtype;
  return dtype;
}

Packing pack(const std::vector<NamedParameter>& parameters, const ShardOptions& options, DType master,
             const std::string& axis, int ranks, int rank) {
  Packing packing;
  for (const NamedParameter& named : parameters) {
    Parameter& p = *named.parameter;
    PackedParameter packed;
    packed.parameter = named.parameter;
    packed.name = named.name;
    if (master != kNoDType) p.dtype = master;
    packed.master = p.dtype;
    packed.compute = p.compute_dtype = compute_dtype(options, named.name, p.dtype);
    packed.gradient = statistics_dtype(packed.compute);
    packed.reduce_dtype = options.reduce_dtype == kNoDType ? packed.gradient : options.reduce_dtype;
    if (packed.reduce_dtype != packed.gradient && wants_gradient(p)) packing.same_reduce_dtype = false;
    packed.shape = p.compute_shape();
    packed.ranks = ranks;
    packed.piece = (packed.shape[0] + ranks - 1) / ranks * packed.shape.count_from(1);
    split(p, axis, packed.shape[0], ranks, rank);
    packing.parameters.push_back(std::move(packed));
  }
  for (const bool matrices : {true, false})
    for (PackedParameter& packed : packing.parameters)
      if (packed.is_matrix() == matrices) place(packed, packing.bytes);
  return packing;
}

Tensor own_box(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p) {
  return Tensor(buffer, at, dtype, p.parameter->local_shape());
}

Tensor own_piece(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p) {
  return Tensor(buffer, at, dtype, Shape{p.piece});
}

Tensor all_pieces(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p) {
  return Tensor(buffer, at, dtype, Shape{p.pieces()});
}

Tensor whole_view(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p) {
  return Tensor(buffer, at, dtype, p.shape);
}

bool wants_gradient(const PackedParameter& p) { return p.has_gradient && wants_gradient(*p.parameter); }

}  // namespace gangway
