// Where the parameters of one unit lie in its buffers: pure arithmetic, the same on a meta device. Every
// parameter starts at a multiple of 64 bytes; a parameter of n rows over W ranks has ceil(n / W) rows a rank,
// of which trailing ranks may own fewer or none, and the rest is padding.
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
  int64_t padded_rows = 0;  // of one rank
  int64_t row_elements = 0;
  DType master, compute;
  DType gradient;              // of full and local gradients: f32, or f64 where compute is f64
  DType reduce_dtype;          // of gradients on the way
  std::vector<size_t> counts;  // elements that each rank owns, without padding

  size_t master_at = 0;          // own rows, private; only where compute reads another dtype
  size_t own_at = 0;             // own rows in the compute dtype
  size_t region_at = 0;          // [W * padded_rows, ...] in the compute dtype
  size_t full_at = 0;            // whole value in the compute dtype, without padding
  size_t gradient_at = 0;        // whole gradient
  size_t reduce_at = 0;          // whole gradient in reduce_dtype
  size_t shard_gradient_at = 0;  // own rows
  size_t reduce_output_at = 0;   // own rows in reduce_dtype, between two reductions

  int64_t rows() const { return parameter->shape[0]; }
  size_t padded_bytes(DType t) const {
    return static_cast<size_t>(padded_rows * row_elements) * item_bytes(t);
  }
  size_t full_bytes(DType t) const { return static_cast<size_t>(rows() * row_elements) * item_bytes(t); }
  bool has_copy() const { return compute != master; }
  bool has_gradient = false;  // storage for it; parameters that are frozen later keep it
};

// Bytes of a unit's buffers.
struct GroupBytes {
  size_t masters = 0;  // private, of parameters whose compute dtype is another
  size_t own = 0;      // own rows that compute reads; of these:
  size_t own_masters = 0, own_copies = 0;
  size_t region = 0;
  size_t full = 0;
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

// Sets also each parameter's layout (over `axis`; empty when `ranks` is 1), row bounds and master dtype.
// `master` none: each parameter's own dtype stays.
Packing pack(const std::vector<NamedParameter>& parameters, const ShardOptions& options, DType master,
             const std::string& axis, int ranks, int rank);

// Rows that this rank owns, in a buffer that holds them `at`.
Tensor own_rows(const std::shared_ptr<Buffer>& buffer, size_t at, DType dtype, const PackedParameter& p);
// Address of a place in a buffer; null on meta.
void* address(const std::shared_ptr<Buffer>& buffer, size_t at);

// Whether it has storage for a gradient and backward makes one.
bool wants_gradient(const PackedParameter& p);

}  // namespace gangway
