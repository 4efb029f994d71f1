#include "ops/cuda/cuda_ops.h"

#include <utility>

#include "device/cuda/cuda_device.h"
#include "ops/check.h"
#include "ops/cuda/attention_paths.h"
#include "ops/cuda/families.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/head_loss.h"

namespace gangway::cuda {
namespace {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(std::shared_ptr<Device> device)
      : device_(std::move(device)), products_(device_->index()), attention_(device_->index()) {}
  Device& device() override { return *device_; }

  void gemm(const GemmArgs& args, Stream& stream) override {
    check(args);
    const OnDevice on(device_->index());
    products_.gemm(args, stream);
  }
  void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream& stream) override {
    check(args);
    const OnDevice on(device_->index());
    cuda::head_loss(products_, args, temporaries, stream);
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
    const OnDevice on(device_->index());
    attention_.attention(args, stream);
  }
  void attention_merge(const AttentionMergeArgs& args, Stream& stream) override {
    run(args, stream, cuda::attention_merge);
  }
  void attention_backward(const AttentionBackwardArgs& args, Stream& stream) override {
    check(args);
    const OnDevice on(device_->index());
    attention_.attention_backward(args, stream);
  }
  void embedding(const EmbeddingArgs& args, Stream& stream) override { run(args, stream, cuda::embedding); }
  void embedding_backward(const EmbeddingBackwardArgs& args, Stream& stream) override {
    run(args, stream, cuda::embedding_backward);
  }
  void loss_part(const LossPartArgs& args, Stream& stream) override { run(args, stream, cuda::loss_part); }
  void loss_join(const LossJoinArgs& args, Stream& stream) override { run(args, stream, cuda::loss_join); }
  void adamw(const AdamWArgs& args, Stream& stream) override { run(args, stream, cuda::adamw); }
  void sgd(const SgdArgs& args, Stream& stream) override { run(args, stream, cuda::sgd); }

  void cast(const Tensor& x, const Tensor& y, Stream& stream) override {
    check_cast(x, y);
    const OnDevice on(device_->index());
    cuda::cast(x, y, stream);
  }
  void fill(const Tensor& y, double value, Stream& stream) override {
    check_fill(y);
    const OnDevice on(device_->index());
    cuda::fill(y, value, stream);
  }
  void add(const Tensor& x, double factor, const Tensor& y, Stream& stream) override {
    check_add(x, y);
    const OnDevice on(device_->index());
    cuda::add(x, factor, y, stream);
  }
  void scale(const Tensor& y, double factor, Stream& stream) override {
    check_scale(y);
    const OnDevice on(device_->index());
    cuda::scale(y, factor, stream);
  }
  void column_sum(const Tensor& x, const Tensor& y, Stream& stream) override {
    check_column_sum(x, y);
    const OnDevice on(device_->index());
    cuda::column_sum(x, y, stream);
  }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream& stream) override {
    check_norm_power(x, p, out);
    const OnDevice on(device_->index());
    cuda::norm_power(x, p, out, stream);
  }
  void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation,
                   Stream& stream) override {
    check_fill_normal(y);
    const OnDevice on(device_->index());
    cuda::fill_normal(y, key, first_element, deviation, stream);
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream) override {
    check_id_range(ids, out);
    const OnDevice on(device_->index());
    cuda::id_range(ids, ignore, out, stream);
  }

  AttentionPaths& attention_paths() { return attention_; }

 private:
  template <typename Args>
  void run(const Args& args, Stream& stream, void (*operation)(const Args&, Stream&)) {
    check(args);
    const OnDevice on(device_->index());
    operation(args, stream);
  }

  const std::shared_ptr<Device> device_;
  Products products_;
  AttentionPaths attention_;
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
