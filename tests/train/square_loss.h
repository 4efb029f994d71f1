// A custom module with one weight vector w and the loss sum 1/2 (x . w - y)^2 over the rows. Flags make it
// fail or return wrong values.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "base/philox.h"
#include "train/train_testing.h"

namespace gangway::test {

constexpr int64_t kWidth = 5;

struct SquareRow {
  double x[kWidth], y;
};

class SquareLoss final : public CustomBehaviour, public std::enable_shared_from_this<SquareLoss> {
 public:
  bool wrong_weight = false, poison = false, poison_loss = false, fail_forward = false, fail_backward = false;
  bool drifts = false;  // each backward gives a larger gradient than the one before
  std::chrono::milliseconds forward_takes{0};

  ModulePtr module() {
    CustomOptions options;
    options.name = "Square";
    options.input_count = 2;
    options.output_count = 2;
    options.parameters = {{"weight", Shape{kWidth}, Init::normal(1)}};
    return make_custom(options, shared_from_this());
  }

  // Rank r has 2 + r rows.
  static std::vector<SquareRow> rows(int rank, int step) {
    std::vector<SquareRow> out(static_cast<size_t>(2 + rank));
    uint64_t i = 0;
    for (SquareRow& row : out) {
      for (double& x : row.x) x = philox_normal(philox_key(11, text("row ", rank, " ", step)), i++);
      row.y = philox_normal(philox_key(11, text("row ", rank, " ", step)), i++);
    }
    return out;
  }
  Batch batch(Model& model, int rank, int step) const {
    std::vector<double> x, y;
    for (const SquareRow& row : rows(rank, step)) {
      x.insert(x.end(), row.x, row.x + kWidth);
      y.push_back(row.y);
    }
    const auto count = static_cast<int64_t>(y.size());
    Batch batch;
    batch.inputs = {tensor_of(model, DType::f64, Shape{count, kWidth}, x.data())};
    batch.targets = {tensor_of(model, DType::f64, Shape{count}, y.data())};
    batch.weight = count;
    return batch;
  }

  std::vector<Spec> shapes(Custom&, Context&, std::span<const Spec> inputs) override {
    const Spec& x = inputs[0];
    if (x.dtype != DType::f64 || x.shape.rank() != 2 || x.shape[1] != kWidth)
      fail(Code::invalid_argument, "Square takes f64 [rows, ", kWidth, "], not ", x.text());
    return {{DType::f64, Shape{1}}, {DType::f64, Shape{1}}};
  }
  void forward(Call& call) override {
    std::this_thread::sleep_for(forward_takes);
    if (fail_forward) fail(Code::caller, "the square broke");
    double sum = 0;
    for (const double error : errors(call)) sum += 0.5 * error * error;
    const double rows = static_cast<double>(call.inputs[0].dim(0));
    copy_in<double>(call.outputs[0], {poison_loss ? std::numeric_limits<double>::quiet_NaN() : sum});
    copy_in<double>(call.outputs[1], {wrong_weight ? 100 : rows});
  }
  void backward_input(Call& call) override {
    if (fail_backward) fail(Code::caller, "the square broke");
    const double seed = call.ctx.loss_scale;
    const std::vector<double> x = copy_out<double>(call.inputs[0]), wrong = errors(call);
    std::vector<double> gradient = copy_out<double>(call.parameters[0]->grad->tensor);
    for (size_t i = 0; i < wrong.size(); ++i)
      for (size_t j = 0; j < kWidth; ++j) gradient[j] += seed * wrong[i] * x[i * kWidth + j];
    if (drifts) gradient[1] += 1e-9 * ++backwards_;
    if (poison) gradient[3] = std::numeric_limits<double>::quiet_NaN();
    copy_in(call.parameters[0]->grad->tensor, gradient);
  }
  bool has_backward_weight() const override { return false; }
  void backward_weight(Call&) override {}
  void free_state(void*) noexcept override {}
  bool accepts(DType) const override { return true; }

 private:
  int backwards_ = 0;
  static std::vector<double> errors(const Call& call) {
    const std::vector<double> x = copy_out<double>(call.inputs[0]), y = copy_out<double>(call.inputs[1]),
                              w = copy_out<double>(call.parameters[0]->value);
    std::vector<double> all;
    for (size_t i = 0; i < y.size(); ++i) {
      all.push_back(-y[i]);
      for (size_t j = 0; j < kWidth; ++j) all.back() += x[i * kWidth + j] * w[j];
    }
    return all;
  }
};

// The same loss and update in plain loops, without tensors and ranks.
class SquareReference {
 public:
  explicit SquareReference(std::vector<double> values)
      : values_(std::move(values)), gradient_(values_.size()) {}

  double add(const std::vector<SquareRow>& rows) {
    double loss = 0;
    for (const SquareRow& row : rows) {
      double error = -row.y;
      for (size_t j = 0; j < values_.size(); ++j) error += row.x[j] * values_[j];
      for (size_t j = 0; j < values_.size(); ++j) gradient_[j] += error * row.x[j];
      loss += 0.5 * error * error;
      ++weight_;
    }
    return loss;
  }
  int64_t weight() const { return weight_; }
  // Of the gradient of the mean loss.
  double norm(double p) const {
    double sum = 0, most = 0;
    for (const double g : gradient_) {
      most = std::max(most, std::fabs(g) / static_cast<double>(weight_));
      sum += std::pow(std::fabs(g) / static_cast<double>(weight_), p);
    }
    return std::isinf(p) ? most : std::pow(sum, 1 / p);
  }
  void step(double lr, double clip = 1) {
    for (size_t j = 0; j < values_.size(); ++j)
      values_[j] -= lr * clip * gradient_[j] / static_cast<double>(weight_);
    std::fill(gradient_.begin(), gradient_.end(), 0.0);
    weight_ = 0;
  }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> values_, gradient_;
  int64_t weight_ = 0;
};

}  // namespace gangway::test
