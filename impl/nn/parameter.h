// A parameter of a module: what it is (global shape, first values, layout) and, once it has storage, where its values
// and gradients lie. nn computes with `value` and adds to `grad`; what owns those (one device, a parameter group) is not
// nn's business.
//
// Thread rule: that of its module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/accumulator.h"
#include "tensor/layout.h"
#include "tensor/tensor.h"

namespace gangway {

struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, fill };
  Kind kind = Kind::normal;
  double deviation = 0.02;  // normal: initializer_range
  // fill: writes rows [first, last) of dim 0, row-major, into out: `count` elements of `dtype`, the parameter's. Throws
  // to refuse.
  struct Filler {
    virtual ~Filler() = default;
    virtual void fill(int64_t first_row, int64_t last_row, void* out, size_t count, DType dtype) = 0;
  };
  std::shared_ptr<Filler> filler;

  static Init zeros() { return {Kind::zeros, 0, nullptr}; }
  static Init ones() { return {Kind::ones, 0, nullptr}; }
  static Init normal(double deviation) { return {Kind::normal, deviation, nullptr}; }
};

class Parameter {
 public:
  enum class Kind : uint8_t { parameter, buffer };

  Parameter(std::string name, const Shape& shape, Init init, Kind kind = Kind::parameter)
      : name(std::move(name)), shape(shape), init(std::move(init)), kind(kind) {}

  // --- description: fixed when the model is described ---
  std::string name;  // within its module: "weight"
  Shape shape;       // global, unpadded; a scalar is [1]
  Init init;
  Kind kind;
  DType dtype = DType::f32;  // of the master: f32 or f64

  // --- placement ---
  Layout layout;           // of the value, outermost split first
  std::vector<int> place;  // this rank's index on the axis of each placement. Set with the storage.
  // Axes besides the data axes over which each rank has only a part of the gradient ("tp"); empty: none. The reduction
  // sums over them.
  std::string grad_partial_axes;
  bool trainable = true;  // frozen: no gradient buffer
  bool listed = true;     // false: a copy of a parameter that another rank steps and counts
  // Key of the initial values: the whole name with the global layer number. Set with the storage.
  std::string full_name;

  bool rests_on_host =
      false;  // shard, its gradient and what is kept of them; else on the device. Set with the storage.
  DType compute_dtype = DType{};  // of what compute reads; none: the master's. Set with the storage.

  // --- storage: set by who owns it (nn/materialize, parallel/fsdp, parallel/replicate) ---
  // What compute reads: compute_shape() in the compute dtype. Absent while sharded.
  Tensor value;
  // What compute adds to: compute_shape(), f32 (f64 for f64). Null outside of backward for sharded units and when
  // frozen. The same object as shard_grad where each rank has all that compute sees, and no other rank's part is missing.
  std::shared_ptr<Accumulator> grad;
  // This rank's own box: the master (what the optimizer steps) and its gradient (null: never trainable).
  Tensor shard;
  std::shared_ptr<Accumulator> shard_grad;
  // The optimizer's copy target in the compute dtype (own box), absent when the master itself is what compute reads.
  Tensor shard_copy;

  // The part of the whole tensor that this rank owns: `shard` holds it.
  Box box() const { return local_box(layout, shape, place); }
  Shape local_shape() const { return box().shape; }
  // What compute sees: the pieces of the placements at rest joined.
  Box compute_box() const { return gangway::compute_box(layout, shape, place); }
  Shape compute_shape() const { return compute_box().shape; }
};

using ParameterPtr = std::shared_ptr<Parameter>;

}  // namespace gangway
