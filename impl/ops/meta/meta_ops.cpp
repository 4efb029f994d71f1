#include "ops/meta/meta_ops.h"

#include "base/config.h"
#include "device/gpu_plans.h"
#include "ops/check.h"
#include "ops/fp8.h"

namespace gangway::meta {
namespace {

class MetaOps final : public Ops, public Fp8Ops {
 public:
  explicit MetaOps(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }

#define GANGWAY_OPERATION(name, Args) \
  void name(const Args& args, Stream&) override { check(args); }
  GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
  void fp8_scale(const Fp8ScaleArgs& args, Stream&) override { check(args); }
  void fp8_codes(const Fp8CodesArgs& args, Stream&) override { check(args); }
  void fp8_gemm(const Fp8GemmArgs& args, Stream&) override { check(args); }
  void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream&) override {
    check(args);
    const StackScope scope(temporaries);
    head_loss_logits(args, temporaries);
  }
  size_t attention_workspace_bytes(const AttentionBackwardArgs& args) override {
    return is_or_plans_for_gpu(*device_) && config().cudnn ? cudnn_workspace_bytes(args) : 0;
  }
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
