#include "ops/meta/meta_ops.h"

#include "ops/check.h"

namespace gangway::meta {
namespace {

class MetaOps final : public Ops {
 public:
  explicit MetaOps(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }

  void gemm(const GemmArgs& args, Stream&) override { check(args); }
  void rmsnorm(const RmsNormArgs& args, Stream&) override { check(args); }
  void rmsnorm_backward(const RmsNormBackwardArgs& args, Stream&) override { check(args); }
  void rope(const RopeArgs& args, Stream&) override { check(args); }
  void swiglu(const SwigluArgs& args, Stream&) override { check(args); }
  void swiglu_backward(const SwigluBackwardArgs& args, Stream&) override { check(args); }
  void attention(const AttentionArgs& args, Stream&) override { check(args); }
  void attention_merge(const AttentionMergeArgs& args, Stream&) override { check(args); }
  void attention_backward(const AttentionBackwardArgs& args, Stream&) override { check(args); }
  void embedding(const EmbeddingArgs& args, Stream&) override { check(args); }
  void embedding_backward(const EmbeddingBackwardArgs& args, Stream&) override { check(args); }
  void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream&) override {
    check(args);
    const StackScope scope(temporaries);
    head_loss_logits(args, temporaries);
  }
  void adamw(const AdamWArgs& args, Stream&) override { check(args); }
  void sgd(const SgdArgs& args, Stream&) override { check(args); }
  void cast(const Tensor& x, const Tensor& y, Stream&) override { check_cast(x, y); }
  void fill(const Tensor& y, double, Stream&) override { check_fill(y); }
  void add(const Tensor& x, double, const Tensor& y, Stream&) override { check_add(x, y); }
  void scale(const Tensor& y, double, Stream&) override { check_scale(y); }
  void column_sum(const Tensor& x, const Tensor& y, Stream&) override { check_column_sum(x, y); }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream&) override {
    check_norm_power(x, p, out);
  }
  void fill_normal(const Tensor& y, uint64_t, uint64_t, double, Stream&) override { check_fill_normal(y); }
  void id_range(const Tensor& ids, int64_t, const Tensor& out, Stream&) override { check_id_range(ids, out); }

 private:
  std::shared_ptr<Device> device_;
};

}  // namespace

std::unique_ptr<Ops> make_meta_ops(const std::shared_ptr<Device>& device) {
  return std::make_unique<MetaOps>(device);
}

}  // namespace gangway::meta
