// A parameter of a module: its description (global shape, initialiser, layout) and, once it is materialized,
// the tensors that hold its values and gradients. The nn layer computes with `value` and adds to `grad`, and
// does not know who allocates them (nn/materialize or a parameter group).
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
  double deviation = 0.02;  // of `normal`; initializer_range in config.json
  // Initialises a parameter of kind `fill`. fill() writes rows [first_row, last_row) of dim 0, row-major,
  // into `out`: `count` elements of `dtype`, which is the parameter's. It throws to report a failure.
  struct Initializer {
    virtual ~Initializer() = default;
    virtual void fill(int64_t first_row, int64_t last_row, void* out, size_t count, DType dtype) = 0;
  };
  std::shared_ptr<Initializer> initializer;

  static Init zeros() { return {Kind::zeros, 0, nullptr}; }
  static Init ones() { return {Kind::ones, 0, nullptr}; }
  static Init normal(double deviation) { return {Kind::normal, deviation, nullptr}; }
};

class Parameter {
 public:
  enum class Kind : uint8_t { parameter, buffer };

  Parameter(std::string name, const Shape& shape, Init init, Kind kind = Kind::parameter)
      : name(std::move(name)), shape(shape), init(std::move(init)), kind(kind) {}

  // --- description: fixed when the model is built ---
  std::string name;  // in its module, such as "weight"
  Shape shape;       // of the whole tensor, unpadded; a scalar is [1]
  Init init;
  Kind kind;
  DType dtype = DType::f32;  // of the master values: f32 or f64

  // --- placement ---
  Layout layout;           // of the value, outermost split first
  std::vector<int> place;  // this rank's index on the axis of each placement; set when materialized
  // Axes besides the data axes over which each rank has a partial gradient, such as "tp"; empty: none. The
  // reduction sums over them.
  std::string grad_partial_axes;
  bool trainable = true;  // false: frozen, without a gradient buffer
  // Whether each row belongs to an id: an embedding's table, the weight of a head. Muon leaves it to AdamW.
  bool rows_are_ids = false;
  bool listed = true;  // false: a copy of a tied parameter; another rank steps it and counts it in the norm
  // The whole name, with the global layer number; it keys the initial values. Set when materialized.
  std::string full_name;

  // Whether the shard, its gradient and its optimizer state lie in host memory. Set when materialized.
  bool is_offloaded = false;
  DType compute_dtype = DType{};  // of `value`; DType{}: the master's; set when materialized

  // --- storage: set by its owner (nn/materialize, parallel/fsdp, parallel/replicate) ---
  // The value that compute reads: compute_shape() in the compute dtype. Absent while sharded.
  Tensor value;
  // The gradient that compute adds to: compute_shape(), f32 (f64 for f64). Null when frozen and, in sharded
  // parameter groups, outside of backward. The same object as shard_grad if this rank's shard is all that
  // compute sees and no other rank adds a part.
  std::shared_ptr<Accumulator> grad;
  // This rank's shard: the master values, which the optimizer steps, and their gradient (null: never
  // trainable).
  Tensor shard;
  std::shared_ptr<Accumulator> shard_grad;
  // The shard in the compute dtype, which the optimizer writes after a step. Absent if compute reads the
  // master itself.
  Tensor shard_copy;

  // The part of the whole tensor that `shard` holds.
  Box box() const { return local_box(layout, shape, place); }
  Shape local_shape() const { return box().shape; }
  // The part of the whole tensor that compute sees: the pieces of the placements at rest are joined.
  Box compute_box() const { return gangway::compute_box(layout, shape, place); }
  Shape compute_shape() const { return compute_box().shape; }
};

using ParameterPtr = std::shared_ptr<Parameter>;

}  // namespace gangway
