// Where the parameters of one unit lie in its buffers: pure arithmetic, the same on a meta device. Every
// parameter starts at a multiple of 64 bytes. A parameter of n rows over W ranks lies as W equal pieces of ceil(n / W)
// rows, values and gradients alike, so that every gather and reduce-scatter is an even one. Compute sees the first n
// rows; trailing ranks may own fewer rows than a piece has, or none. The rest is padding, which is zero.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/options.h"

namespace gangway {

// One parameter. Offsets are in bytes, each in the buffer of that name (see GroupBytes).
struct PackedParameter {
  ParameterPtr parameter;
  std::string name;
  Shape shape;        // what compute sees: whole, or the piece of a split in use (tensor parallelism)
  int ranks = 1;      // W
  int64_t piece = 0;  // elements of one rank's piece, with its padding
  DType master, compute;
  DType gradient;      // of full and local gradients: f32, or f64 where compute is f64
  DType reduce_dtype;  // of gradients on the way

  size_t master_at = 0;          // own rows, private; only where compute reads another dtype
  size_t own_at = 0;             // own rows in the compute dtype
  size_t full_at = 0;            // all pieces in the compute dtype, in a shared region or a gathered buffer
  size_t gradient_at = 0;        // all pieces of the gradient
  size_t reduce_at = 0;          // likewise in reduce_dtype
  size_t shard_gradient_at = 0;  // own rows
  size_t reduce_output_at = 0;   // own rows in reduce_dtype, between two reductions

  int64_t pieces() const { return ranks * piece; }  // elements of all
  int64_t padding() const { return pieces() - shape.count(); }
  size_t piece_bytes(DType t) const { return static_cast<size_t>(piece) * item_bytes(t); }
  size_t full_bytes(DType t) const { return static_cast<size_t>(pieces()) * item_bytes(t); }
  bool has_copy() const { return compute != master; }
  bool has_gradient = false;  // storage for it; parameters that are frozen later keep it
};

// Bytes of a unit's buffers.
struct GroupBytes {
  size_t masters = 0;  // private, of parameters whose compute dtype is another
  size_t own = 0;      // own rows that compute reads; of these:
  size_t own_masters = 0, own_copies = 0;
  size_t full = 0;  // of a shared region or a gathered buffer
  size_t gradients = 0;
  size_t reduce_buffers = 0;
  size_t shard_gradients = 0;
  size_t reduce_outputs = 0;
};

struct Packing {
  std::vector<PackedParameter> parameters;
  GroupBytes bytes;
  bool same_reduce_dtype = true;  // gradients travel in their own dtype
};

// What compute reads: dtype_rules by name, else param_dtype, else the master's.
DType compute_dtype(const ShardOptions& options, const std::string& name, DType master);

// Sets also each parameter's master dtype, and adds the split over `axis` to its layout when `ranks` is over 1: at rest,
// on dim 0 of what the placements before leave. `master` none: each parameter's own dtype stays.
Packing pack(const std::vector<NamedParameter>& parameters, const ShardOptions& options, DType master,
             const std::string& axis, int ranks, int rank);

// The box that this rank owns, in a buffer that holds it `at`.
Tensor own_box(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);
// One rank's piece with its padding, and all pieces, flat.
Tensor own_piece(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);
Tensor all_pieces(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);
// What compute sees of them.
Tensor whole_view(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);

// Whether it has storage for a gradient and backward makes one.
bool wants_gradient(const PackedParameter& p);

}  // namespace gangway
