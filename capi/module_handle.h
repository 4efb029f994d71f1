// The handles gw_module, gw_frame, gw_parameter and gw_optimizer.
//
// A gw_module is only a description until a call that wraps or materializes it binds it to gangs. From then
// on it has a Model.
//
// Thread rule: one thread at a time per model; any thread may release a handle.
#pragma once

#include <gangway/frame.h>
#include <gangway/parameter.h>

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
  explicit gw_module(std::shared_ptr<gangway::Model> m) : model(std::move(m)), use_(model->thread_use()) {}

  // Returns the Model; the first call makes it. Null gangs: the bound ones, else the thread's current ones,
  // else a gang of one. INVALID_STATE: the module is bound to other gangs, or is part of another module.
  gangway::Model& bind(gw_gangs* gangs);
  // Undoes the bind() of a call that failed.
  void unbind();
  // Returns the gangs over which a set-up call of this model agrees on its arguments: the bound ones,
  // `given`, the thread's current ones, or null.
  static gangway::Gangs* gangs_of(const gw_module* model, const gw_gangs* given);
  // Returns the Model. INVALID_STATE: there is none; the text names gw_module_materialize.
  gangway::Model& ready() const;

  // Records that `parts` are part of this module now.
  void takes(std::span<gw_module* const> parts);
  // Returns the module, to be put into another one. INVALID_STATE: it is bound to gangs, or is part of
  // another module already.
  gangway::ModulePtr part(const std::string& name);

  const gangway::capi::Use& thread_use() const { return use_; }

  gangway::ModulePtr module;              // null for a model that was made of shard groups
  std::weak_ptr<gangway::Module> inside;  // the module that this one is part of
  std::shared_ptr<gangway::Model> model;  // null until bind()
  // The handle that callbacks get and may retain; null: a gang of one.
  struct Release {
    void operator()(gw_gangs* handle) const { gangway::capi::release(handle); }
  };
  std::unique_ptr<gw_gangs, Release> gangs;
  gangway::RecomputeOptions recompute;  // of a gw_recompute before bind()

 private:
  const gangway::capi::Use use_ = gangway::capi::new_use();  // the model gets it, too
};

struct gw_frame : gangway::capi::Handle {
  gw_frame(std::shared_ptr<gangway::Model> m, const gangway::ManualOptions& o) : frame(std::move(m), o) {}
  const gangway::capi::Use& thread_use() const { return frame.model()->thread_use(); }
  gangway::ManualFrame frame;
};

struct gw_parameter : gangway::capi::Handle {
  const gangway::capi::Use& thread_use() const { return model ? model->thread_use() : use; }
  const gangway::capi::Use use = gangway::capi::new_use();
  std::shared_ptr<gangway::Model> model;  // null: the parameter of a model without memory
  std::string name, layout;
  gangway::ParameterPtr parameter;
  // Shape and strides of borrowed views. Each part has its own, so that views of different parts are valid at
  // once.
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
  const gangway::capi::Use& thread_use() const { return model->thread_use(); }
  std::shared_ptr<gangway::Model> model;
  std::unique_ptr<gangway::Optimizer> optimizer;
  std::shared_ptr<const gangway::ModelInspector::OptimizerBytes> counted;
};

namespace gangway::capi {

// Runs a call that wraps or materializes a model: reads the arguments and binds the model, both in one check
// phase over its gangs, then calls `wrap`. If the call fails before it has changed the model, the model is
// unbound again.
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

// INVALID_ARGUMENT: the last of `modules` occurs twice; `last` names it in the message.
void check_once(const std::vector<ModulePtr>& modules, const std::string& last);
// Reads views as input tensors. Strided views, and views of memory that is not the device's, become dense
// copies.
std::vector<Tensor> tensors_of(const gw_view* views, size_t count, Stream& stream, const char* name);

}  // namespace gangway::capi
