// The offsets of the parameters of one parameter group in its buffers. This is pure arithmetic and the same
// on a meta device. Every parameter starts at a multiple of 64 bytes. Values and gradients of a parameter of
// n rows over W ranks are W equal pieces of ceil(n / W) rows, so that every all-gather and reduce-scatter has
// equal counts. Compute sees the first n rows. The last ranks may own fewer rows than a piece has, or none;
// the rest is padding, which is zero.
//
// Matrices come before vectors, so that the weights of layers that read the same input lie side by side
// (nn/joined_linears.h), and so do their biases.
//
// Thread rule: values and pure functions; pack changes the parameters that it gets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"
#include "parallel/options.h"

namespace gangway {

// The place of one parameter. Offsets are in bytes, each in the buffer that GroupBytes names likewise.
struct PackedParameter {
  ParameterPtr parameter;
  std::string name;
  Shape shape;        // what compute sees: the full shape, or the tensor-parallel part of it
  int ranks = 1;      // W
  int64_t piece = 0;  // elements of one rank's piece, padding included
  DType master, compute;
  DType gradient;      // of full and local gradients: f32, or f64 if compute is f64
  DType reduce_dtype;  // of gradients in reductions

  size_t master_at = 0;    // own rows of the private master, if compute reads another dtype
  size_t own_at = 0;       // own rows in the compute dtype
  size_t full_at = 0;      // all pieces in the compute dtype, in a shared region or an all-gather buffer
  size_t gradient_at = 0;  // all pieces of the full gradient
  size_t reduce_at = 0;    // all pieces of the full gradient in reduce_dtype
  size_t shard_gradient_at = 0;  // own rows of the local gradient
  size_t reduce_output_at = 0;   // own rows in reduce_dtype, between reduce-scatter and all-reduce

  int64_t pieces() const { return ranks * piece; }  // elements of all pieces
  int64_t padding() const { return pieces() - shape.count(); }
  size_t piece_bytes(DType t) const { return static_cast<size_t>(piece) * item_bytes(t); }
  size_t full_bytes(DType t) const { return static_cast<size_t>(pieces()) * item_bytes(t); }
  bool has_copy() const { return compute != master; }
  bool has_gradient = false;  // has storage for a gradient, which a parameter that is frozen later keeps
  bool is_matrix() const { return shape.rank() > 1; }  // or has more dims
};

// Bytes of a parameter group's buffers.
struct GroupBytes {
  size_t masters = 0;  // private master values of parameters whose compute dtype differs
  size_t own = 0;      // own rows that compute reads, which are:
  size_t own_masters = 0, own_copies = 0;
  size_t full = 0;  // a shared region or an all-gather buffer
  size_t gradients = 0;
  size_t reduce_buffers = 0;
  size_t shard_gradients = 0;
  size_t reduce_outputs = 0;
};

struct Packing {
  std::vector<PackedParameter> parameters;
  GroupBytes bytes;
  bool same_reduce_dtype = true;  // all gradients are reduced in their own dtype
};

// Returns the dtype that compute reads: that of the last matching dtype rule, else param_dtype, else the
// master's.
DType compute_dtype(const ShardOptions& options, const std::string& name, DType master);

// Computes the offsets. It also sets each parameter's master dtype (`master` none: the parameter keeps its
// own) and its compute dtype. If `ranks` > 1, it adds a placement at rest (tensor/layout.h) over `axis` to
// its layout, on dim 0 of the part that the other splits leave.
Packing pack(const std::vector<NamedParameter>& parameters, const ShardOptions& options, DType master,
             const std::string& axis, int ranks, int rank);

// Views the shard of this rank, which starts `at` in the buffer.
Tensor own_box(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);
// Flat views of this rank's piece with its padding, and of all pieces.
Tensor own_piece(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);
Tensor all_pieces(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);
// Views the part of all pieces that compute sees.
Tensor whole_view(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);

// Returns whether the parameter has storage for a gradient and backward computes one.
bool wants_gradient(const PackedParameter& p);

}  // namespace gangway
