// A model with its optimizer, and batches for it.
#pragma once

#include "nn/small_llama.h"
#include "train/square_loss.h"
#include "train/train_testing.h"

namespace gangway::test {

// Tokens of a repeating pattern. The labels equal the tokens, because the library shifts them.
inline Batch pattern_batch(Model& model, int64_t rows, int64_t length, int64_t start) {
  std::vector<int64_t> ids;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < length; ++s) ids.push_back((start + 3 * r + s * s) % 17);
  const Tensor tokens = tensor_of(model, DType::i64, Shape{rows, length}, ids.data());
  Batch batch;
  batch.inputs = {tokens};
  batch.targets = {tokens};
  batch.shift_labels = true;
  return batch;
}

struct Rig {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  Stream& stream() const { return model->device().stream(); }
  StepResult step(const Batch& batch, const StepOptions& options = {}) const {
    return train_step(*model, optimizer.get(), batch, options, stream());
  }
  std::vector<double> parameters() const {
    std::vector<double> all;
    for (const NamedParameter& named : model->inspect().parameters())
      for (const double x : gathered(*model, *named.parameter)) all.push_back(x);
    return all;
  }
};

inline Rig llama_rig(Gang& root, Strategy strategy = Strategy::full_shard, DType master = DType::f64) {
  Rig rig;
  rig.model = make_model(make_decoder(small_llama()), make_gangs(root), parallel(strategy, master));
  OptimizerOptions options;
  options.lr = 0.01;
  rig.optimizer = make_optimizer("adamw", rig.model->inspect().parameters(), options, rig.model->ops());
  return rig;
}

inline Rig square_rig(Gang& root, const std::shared_ptr<SquareLoss>& loss,
                      Strategy strategy = Strategy::full_shard) {
  Rig rig;
  rig.model = make_model(loss->module(), make_gangs(root), parallel(strategy));
  OptimizerOptions options;
  options.lr = 0.25;
  rig.optimizer = make_optimizer("sgd", rig.model->inspect().parameters(), options, rig.model->ops());
  return rig;
}

}  // namespace gangway::test
