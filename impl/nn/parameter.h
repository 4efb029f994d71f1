// A parameter of a module: what it is (global shape, first values, layout) and, once somebody gave it storage, where its
// values and gradients lie. nn computes with `value` and adds to `grad`; who owns those (one device, a shard unit) is
// not nn's business.
//
// Thread rule: that of its module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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
  Layout layout;
  bool trainable = true;  // frozen: no gradient buffer
  // Key of the initial values: the whole name with the global layer number. Set with the storage.
  std::string full_name;

  // --- storage: set by who owns it (nn/materialize, parallel/fsdp, parallel/replicate) ---
  // What compute reads: the whole local value in the compute dtype. Absent while sharded.
  Tensor value;
  // What compute adds to: whole, f32 (f64 for f64). Absent outside of backward for sharded units and when frozen.
  Tensor grad;
  // False: grad has undefined contents and the first product writes it instead of adding.
  bool grad_written = false;
  // This rank's own rows [row_first, row_last) of dim 0: the master (what the optimizer steps) and its gradient.
  Tensor shard, shard_grad;
  bool shard_grad_written = false;
  int64_t row_first = 0, row_last = 0;
  // The optimizer's copy target in the compute dtype (own rows), absent when the master itself is what compute reads.
  Tensor shard_copy;
};

using ParameterPtr = std::shared_ptr<Parameter>;

}  // namespace gangway
