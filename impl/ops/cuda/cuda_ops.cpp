#include "ops/cuda/cuda_ops.h"

#include <utility>

#include "device/cuda/cuda_device.h"
#include "ops/check.h"
#include "ops/cuda/attention_paths.h"
#include "ops/cuda/families.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/head_loss.h"
#include "ops/cuda/words.h"

namespace gangway::cuda {
namespace {

// Operations are put to the stream's segment. Those whose numbers change from step to step run at once, since their
// segments would never come again: optimizers (lr, step), losses (1 / N), factors, first values.
class CudaOps final : public Ops {
 public:
  explicit CudaOps(std::shared_ptr<Device> device)
      : device_(std::move(device)), products_(device_->index()), attention_(device_->index()) {}
  // What is kept back holds memory, which holds the device, and points here.
  ~CudaOps() override { submit_quietly(*device_); }
  Device& device() override { return *device_; }

  void gemm(const GemmArgs& args, Stream& stream) override {
    check(args);
    later(stream, multiply, &products_, args);
  }
  void rmsnorm(const RmsNormArgs& args, Stream& stream) override { run(args, stream, cuda::rmsnorm); }
  void rmsnorm_backward(const RmsNormBackwardArgs& args, Stream& stream) override {
    run(args, stream, cuda::rmsnorm_backward);
  }
  void rope(const RopeArgs& args, Stream& stream) override { run(args, stream, cuda::rope); }
  void swiglu(const SwigluArgs& args, Stream& stream) override { run(args, stream, cuda::swiglu); }
  void swiglu_backward(const SwigluBackwardArgs& args, Stream& stream) override {
    run(args, stream, cuda::swiglu_backward);
  }
  void attention(const AttentionArgs& args, Stream& stream) override {
    check(args);
    later(stream, attend, attending(), args);
  }
  void attention_merge(const AttentionMergeArgs& args, Stream& stream) override {
    run(args, stream, cuda::attention_merge);
  }
  void attention_backward(const AttentionBackwardArgs& args, Stream& stream) override {
    check(args);
    later(stream, attend_backward, attending(), args);
  }
  void embedding(const EmbeddingArgs& args, Stream& stream) override { run(args, stream, cuda::embedding); }
  void embedding_backward(const EmbeddingBackwardArgs& args, Stream& stream) override {
    run(args, stream, cuda::embedding_backward);
  }
  void loss_part(const LossPartArgs& args, Stream& stream) override { run(args, stream, cuda::loss_part); }
  void divide_by_norm(const DivideByNormArgs& args, Stream& stream) override {
    run(args, stream, cuda::divide_by_norm);
  }

  void loss_join(const LossJoinArgs& args, Stream& stream) override {
    check(args);
    now(stream, cuda::loss_join, args);
  }
  void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream& stream) override {
    check(args);
    stream.submit();
    const OnDevice on(device_->index());
    cuda::head_loss(products_, args, temporaries, stream);
  }
#define GANGWAY_OPERATION(name, Args)                    \
  void name(const Args& args, Stream& stream) override { \
    check(args);                                         \
    now(stream, cuda::name, args);                       \
  }
  GANGWAY_OPTIMIZER_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
  void scale(const Tensor& y, double factor, Stream& stream) override {
    check_scale(y);
    now(stream, cuda::scale, y, factor);
  }
  void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation,
                   Stream& stream) override {
    check_fill_normal(y);
    now(stream, cuda::fill_normal, y, key, first_element, deviation);
  }

  void cast(const Tensor& x, const Tensor& y, Stream& stream) override {
    check_cast(x, y);
    later(stream, cuda::cast, x, y);
  }
  void fill(const Tensor& y, double value, Stream& stream) override {
    check_fill(y);
    later(stream, cuda::fill, y, value);
  }
  void add(const Tensor& x, double factor, const Tensor& y, Stream& stream) override {
    check_add(x, y);
    later(stream, cuda::add, x, factor, y);
  }
  void column_sum(const Tensor& x, const Tensor& y, Stream& stream) override {
    check_column_sum(x, y);
    later(stream, cuda::column_sum, x, y);
  }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream& stream) override {
    check_norm_power(x, p, out);
    later(stream, cuda::norm_power, x, p, out);
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream) override {
    check_id_range(ids, out);
    later(stream, cuda::id_range, ids, ignore, out);
  }

  AttentionPaths& attention_paths() { return attention_; }

 private:
  static void multiply(Products* products, const GemmArgs& args, Stream& stream) {
    products->gemm(args, stream);
  }
  // A plan is made when a call first runs, which is before it is captured.
  struct Attending {
    AttentionPaths* paths;
    friend void append(Words& words, const Attending& attending) { append(words, attending.paths->serial()); }
  };
  Attending attending() { return {&attention_}; }
  static void attend(const Attending& attending, const AttentionArgs& args, Stream& stream) {
    attending.paths->attention(args, stream);
  }
  static void attend_backward(const Attending& attending, const AttentionBackwardArgs& args, Stream& stream) {
    attending.paths->attention_backward(args, stream);
  }

  template <typename Args>
  void run(const Args& args, Stream& stream, void (*operation)(const Args&, Stream&)) {
    check(args);
    later(stream, operation, args);
  }
  template <typename... Arguments, typename Operation>
  void now(Stream& stream, Operation* operation, const Arguments&... arguments) {
    stream.submit();
    const OnDevice on(device_->index());
    operation(arguments..., stream);
  }
  template <typename... Arguments, typename Operation>
  void later(Stream& stream, Operation* operation, const Arguments&... arguments) {
    if (!keeps(stream)) return now(stream, operation, arguments...);
    words_.clear();
    append(words_, operation);
    (append(words_, arguments), ...);
    keep(stream, words_, [operation, &stream, arguments...] { operation(arguments..., stream); });
  }

  const std::shared_ptr<Device> device_;
  Products products_;
  AttentionPaths attention_;
  Words words_;  // of one operation; its memory is used again
};

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(const std::shared_ptr<Device>& device) {
  return std::make_unique<CudaOps>(device);
}

std::string describe_cuda_paths(Ops& ops) {
  auto* const mine = dynamic_cast<CudaOps*>(&ops);
  if (mine == nullptr) return {};
  return mine->attention_paths().describe() + "other operations: own kernels, products by cuBLASLt\n";
}

}  // namespace gangway::cuda
