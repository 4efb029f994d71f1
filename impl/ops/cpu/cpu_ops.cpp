#include "ops/cpu/cpu_ops.h"

#include <algorithm>

#include "ops/check.h"
#include "ops/cpu/elementwise.h"
#include "ops/cpu/fp8.h"
#include "ops/cpu/gemm_cache.h"
#include "ops/cpu/head_loss.h"
#include "ops/cpu/operations.h"

namespace gangway::cpu {
namespace {

class CpuOps final : public Ops, public Fp8Ops {
 public:
  CpuOps(std::shared_ptr<Device> device, CpuDevice& cpu, Isa isa)
      : device_(std::move(device)),
        scratch_(cpu.pool().threads()),
        gemm_cache_(cpu.pool().threads()),
        context_{cpu, cpu.pool(), isa, scratch_, gemm_cache_} {}

  Device& device() override { return *device_; }
  Context& context() { return context_; }

#define GANGWAY_OPERATION(name, Args) \
  void name(const Args& args, Stream&) override { run(args, cpu::name); }
  GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION
  void fp8_scale(const Fp8ScaleArgs& args, Stream&) override { run(args, cpu::fp8_scale); }
  void fp8_codes(const Fp8CodesArgs& args, Stream&) override { run(args, cpu::fp8_codes); }
  void fp8_gemm(const Fp8GemmArgs& args, Stream&) override { run(args, cpu::fp8_gemm); }
  void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream&) override {
    check(args);
    cpu::head_loss(context_, args, temporaries);
  }
  void cast(const Tensor& x, const Tensor& y, Stream&) override {
    check_cast(x, y);
    cpu::cast(context_, x, y);
  }
  void fill(const Tensor& y, double value, Stream&) override {
    check_fill(y);
    cpu::fill(context_, y, value);
  }
  void add(const Tensor& x, double factor, const Tensor& y, Stream&) override {
    check_add(x, y);
    cpu::add(context_, x, factor, y);
  }
  void scale(const Tensor& y, double factor, Stream&) override {
    check_scale(y);
    cpu::scale(context_, y, factor);
  }
  void column_sum(const Tensor& x, const Tensor& y, Stream&) override {
    check_column_sum(x, y);
    cpu::column_sum(context_, x, y);
  }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream&) override {
    check_norm_power(x, p, out);
    cpu::norm_power(context_, x, p, out);
  }
  void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation,
                   Stream&) override {
    check_fill_normal(y);
    cpu::fill_normal(context_, y, key, first_element, deviation);
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream&) override {
    check_id_range(ids, out);
    cpu::id_range(context_, ids, ignore, out);
  }

 private:
  template <typename Args>
  void run(const Args& args, void (*kernel)(Context&, const Args&)) {
    check(args);
    kernel(context_, args);
  }

  std::shared_ptr<Device> device_;
  Scratch scratch_;
  GemmCache gemm_cache_;
  Context context_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(const std::shared_ptr<Device>& device, Isa cap) {
  auto* cpu = dynamic_cast<CpuDevice*>(device.get());
  if (cpu == nullptr) fail(Code::internal, "make_cpu_ops: device \"", device->name(), "\" is not the cpu");
  return std::make_unique<CpuOps>(device, *cpu, std::min(cap, processor_isa()));
}

std::string describe_cpu_paths(Ops& ops) {
  auto* cpu = dynamic_cast<CpuOps*>(&ops);
  if (cpu == nullptr) return {};
  Context& context = cpu->context();
  const std::string own = std::string("own kernel, ") + name(context.isa) + "\n";
  std::string out;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    out += std::string("gemm ") + name(dtype) + ": " +
           (gemm_uses_onednn(context, dtype) ? "oneDNN, one slice a thread; tiny and unpacked shapes own\n"
            : item_bytes(dtype) == 2         ? "f32 panels, " + own
                                             : own);
#define GANGWAY_NAME(name, Args) #name,
  for (const char* op : {"rmsnorm",
                         "row_dot",
                         "layernorm",
                         "rope",
                         "swiglu",
                         "activation",
                         "dropout",
                         "attention",
                         "attention_merge",
                         "embedding",
                         "head_loss",
                         "loss_part",
                         "loss_join",
                         GANGWAY_OPTIMIZER_OPERATIONS(GANGWAY_NAME) "cast",
                         "fill",
                         "add",
                         "scale",
                         "column_sum",
                         "norm_power",
                         "divide_by_norm",
                         "checksum",
                         "fp8_scale",
                         "fp8_codes",
                         "fill_normal",
                         "id_range"})
    out += std::string(op) + ": " + own;
#undef GANGWAY_NAME
  return out + "fp8_gemm: decoded codes, then gemm\n";
}

}  // namespace gangway::cpu
