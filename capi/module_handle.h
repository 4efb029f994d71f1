// gw_module, gw_frame, gw_parameter, gw_optimizer.
//
// A gw_module is a description until a wrapping or materialising call binds it to gangs; from then on it has
// a Model.
#pragma once

#include <memory>

#include "gang_handle.h"
#include "mesh_handle.h"
#include "optim/optimizer.h"
#include "parallel/collective_call.h"
#include "parallel/model/model.h"
#include "tensor_handle.h"
#include "train/manual.h"

struct gw_module : gangway::capi::Handle {
  explicit gw_module(gangway::ModulePtr m) : module(std::move(m)) {}
  explicit gw_module(std::shared_ptr<gangway::Model> m) : model(std::move(m)) {}

  // The Model for `gangs`, made at the first call (null gangs: the bound ones, or a gang of one).
  // INVALID_STATE: bound to others, or inside another model.
  gangway::Model& bind(gw_gangs* gangs);
  // Undoes a bind by a call that was refused.
  void unbind();
  // What set-up calls of this model agree on: the bound gangs, `given`, or null.
  static gangway::Gangs* gangs_of(const gw_module* model, const gw_gangs* given);
  // INVALID_STATE that names gw_module_materialize.
  gangway::Model& ready() const;

  // Says that `parts` are inside of this module now.
  void takes(std::span<gw_module* const> parts);
  // The module, described, to be put into another one. INVALID_STATE: bound to gangs, or in another one
  // already.
  gangway::ModulePtr part(const std::string& name);

  gangway::ModulePtr module;              // null for groups
  std::weak_ptr<gangway::Module> inside;  // of this module
  std::shared_ptr<gangway::Model> model;  // null until bound
  // What callbacks see, and may retain; null: a gang of one.
  struct Release {
    void operator()(gw_gangs* handle) const { gangway::capi::release(handle); }
  };
  std::unique_ptr<gw_gangs, Release> gangs;
  gangway::RecomputeOptions recompute;  // asked for before binding
};

struct gw_frame : gangway::capi::Handle {
  gw_frame(std::shared_ptr<gangway::Model> m, const gangway::ManualOptions& o) : frame(std::move(m), o) {}
  gangway::ManualFrame frame;
};

struct gw_parameter : gangway::capi::Handle {
  std::shared_ptr<gangway::Model> model;  // null: a description
  std::string name, layout;
  gangway::ParameterPtr parameter;
  // Of borrowed views: one place for each part, so that views of unlike parts may live side by side.
  struct Dims {
    std::array<int64_t, gangway::kMaxDims> shape{}, strides{};
  };
  std::array<Dims, 4> parts;
  Dims state;
};

struct gw_optimizer : gangway::capi::Handle {
  gw_optimizer(std::shared_ptr<gangway::Model> m, std::unique_ptr<gangway::Optimizer> o)
      : model(std::move(m)),
        optimizer(std::move(o)),
        counted(model->inspect().count_optimizer(optimizer->state_bytes(),
                                                 optimizer->state_bytes(/*on_host=*/true))) {}
  std::shared_ptr<gangway::Model> model;
  std::unique_ptr<gangway::Optimizer> optimizer;
  std::shared_ptr<const gangway::ModelInspector::OptimizerBytes> counted;
};

namespace gangway::capi {

// A set-up call: reads arguments and binds the model, both agreed over its gangs, then wraps. A refusal
// leaves the model as it was.
template <typename Read, typename Wrap>
void set_up(gw_module* model, gw_gangs* gangs, Read&& read, Wrap&& wrap) {
  bool binds = false;
  const auto check = [&] {
    read();
    gw_module& m = required(model, "model");
    binds = !m.model;
    m.bind(gangs);
  };
  Gangs* const agreeing = gw_module::gangs_of(model, gangs);
  try {
    if (agreeing != nullptr)
      CollectiveCall(*agreeing, "set_up").read(check);
    else
      check();
    wrap(*model->model);
  } catch (...) {
    if (binds && model->model && model->model->build().pristine()) model->unbind();
    throw;
  }
}

// INVALID_ARGUMENT: the last of `modules`, called `last`, stands before.
void check_once(const std::vector<ModulePtr>& modules, const std::string& last);
// Inputs; strided ones and those of another memory than the stream's device as a dense copy.
std::vector<Tensor> tensors_of(const gw_view* views, size_t count, Stream& stream, const char* name);
// Reads the initialisers of parameters. Each distinct record's object is freed once: with the last parameter
// that was made of it or, while take() was not called, by the destructor.
class Initializers {
 public:
  Initializers(const gw_parameter_options* parameters, size_t count) noexcept
      : first_(parameters), count_(count) {}
  ~Initializers();
  Init read(const gw_init_options* options);
  void take() noexcept;  // the call succeeded

 private:
  struct Held {
    void* user = nullptr;
    gw_free_fn release = nullptr;
    bool taken = false;
    ~Held() {
      if (taken && release != nullptr) release(user);
    }
  };
  class Fill;
  const gw_init_options* at(size_t i) const noexcept;
  const gw_parameter_options* first_;
  size_t count_;
  bool taken_ = false;
  std::vector<std::pair<const gw_init_options*, std::shared_ptr<Held>>> held_;
};
Shape shape_of(const gw_parameter_options& options);

}  // namespace gangway::capi
