// Compares one training step over a mesh with the same step on one rank, both in f64. It finds what no test
// of a module on one rank can find: a gradient that is summed twice or not at all, a plan that does not fit
// the module, a loss that is divided by the wrong number.
//
// Thread rule: one thread at a time; collective over the gangs.
#pragma once

#include <functional>
#include <string>

#include "parallel/model/model.h"
#include "train/types.h"

namespace gangway {

struct VerifyOptions {
  ParallelOptions parallel;  // of the mesh; its dtypes are not used
  int microbatches = 1;      // of the step over the mesh
  // The norm of a difference over the norm of what is compared. In f64 sums in another order stay far below.
  double tolerance = 1e-8;
};

struct VerifyResult {
  double loss = 0, mesh_loss = 0;
  double grad_norm = 0, mesh_grad_norm = 0;
  size_t parameters = 0;  // that have gradients
  size_t differing = 0;   // of their gradients
  // The first of them in the order of backward, which comes to the last modules first: what is wrong in one
  // module changes the gradients of those before it, too.
  std::string parameter;
  double difference = 0;  // of its gradient, over the norm of the gradient
  // The first module, in the order of forward, whose output differs; empty: none does, or that is not known.
  std::string module;
  std::string refusal;  // what differs, with both values; empty: nothing does
};

// Makes two models by `build`, which returns a new description at each call, the same on every rank. `batch`
// is this rank's, as in train_step. Compares first values, loss, norm of the gradients, every gradient, and
// the loss after a step of SGD; if the losses differ, the outputs of modules, too. A NaN or an infinity that
// one of the two steps has alone is a difference; INVALID_ARGUMENT: both have one. Every rank computes the
// step of one rank for itself, with the batches of all. What differs on one rank is refused on all.
VerifyResult verify(const GangsPtr& gangs, const std::function<ModulePtr()>& build, const Batch& batch,
                    const VerifyOptions& options);

// What a step with shard groups gives: the model of the groups (parallel/shard_group.h), whose gradients are
// reduced and whose values are those before the update, and the mean loss of the whole batch.
struct GroupsStep {
  std::shared_ptr<Model> model;
  double loss = 0;
};

// Calls `step` with `gangs`, and on every rank with gangs of one rank, for the same step of a program that
// computes by itself with shard groups. `step` makes its groups over the gangs that it gets, in f64, and
// takes the rows of the batch that their data_shard says; on one rank these are all rows. Compares first
// values, loss, norm of the gradients, every gradient, and the update that SGD makes of it. A failure of
// `step` breaks `gangs`, because peers may wait in it.
VerifyResult verify_groups(const GangsPtr& gangs, const std::function<GroupsStep(const GangsPtr&)>& step,
                           double tolerance);

}  // namespace gangway
