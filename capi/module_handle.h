// gw_module, gw_frame, gw_parameter, gw_optimizer.
//
// A gw_module is a description until a wrapping or materialising call binds it to gangs; from then on it has a Model.
#pragma once

#include <memory>

#include "mesh_handle.h"
#include "optim/optimizer.h"
#include "parallel/model.h"
#include "tensor_handle.h"

struct gw_module : gangway::capi::Handle {
  explicit gw_module(gangway::ModulePtr m) : module(std::move(m)) {}
  explicit gw_module(std::shared_ptr<gangway::Model> m) : model(std::move(m)) {}

  // The Model for `gangs`, made at the first call (null gangs: the bound ones, or a gang of one). INVALID_STATE: bound
  // to others, or inside another model.
  gangway::Model& bind(gw_gangs* gangs);
  // INVALID_STATE that names gw_module_materialize.
  gangway::Model& ready() const;

  gangway::ModulePtr module;              // null for groups
  std::shared_ptr<gangway::Model> model;  // null until bound
  std::unique_ptr<gw_gangs> gangs;        // what callbacks see; null: a gang of one
  gangway::RecomputeOptions recompute;    // asked for before binding
};

struct gw_frame : gangway::capi::Handle {
  gw_frame(std::shared_ptr<gangway::Model> m, const gw_frame_options& o);
  std::shared_ptr<gangway::Model> model;
  gangway::Frame frame;
  gw_frame_options options;
  gangway::Tensor seed;  // f64 [1]
};

struct gw_parameter : gangway::capi::Handle {
  std::shared_ptr<gangway::Model> model;  // null: a description
  std::string name, layout;
  gangway::ParameterPtr parameter;
  std::array<int64_t, gangway::kMaxDims> shape{}, strides{};
};

struct gw_optimizer : gangway::capi::Handle {
  gw_optimizer(std::shared_ptr<gangway::Model> m, std::unique_ptr<gangway::Optimizer> o)
      : model(std::move(m)), optimizer(std::move(o)) {}
  std::shared_ptr<gangway::Model> model;
  std::unique_ptr<gangway::Optimizer> optimizer;
};

namespace gangway::capi {

std::vector<Tensor> tensors_of(const gw_view* views, size_t count, Device& device, const char* name);
Init init_of(const gw_init_options* options);
Shape shape_of(const gw_parameter_options& options);

}  // namespace gangway::capi
