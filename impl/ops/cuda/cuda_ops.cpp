#include "ops/cuda/cuda_ops.h"

#include <bit>
#include <concepts>
#include <type_traits>
#include <utility>

#include "base/members.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/segments.h"
#include "ops/check.h"
#include "ops/cuda/attention_paths.h"
#include "ops/cuda/families.h"
#include "ops/cuda/fp8.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/head_loss.h"

namespace gangway::cuda {
namespace {

// The overloads of append() add one argument of an operation to its key (segments.h): each address, shape,
// stride and number. A member of any other type does not compile until it has an overload.
template <std::integral Number>
void append(SegmentKey& key, Number number) {
  key.push_back(static_cast<uint64_t>(number));
}
template <typename Choice>
requires std::is_enum_v<Choice>
void append(SegmentKey& key, Choice choice) { key.push_back(static_cast<uint64_t>(choice)); }
void append(SegmentKey& key, double number) { key.push_back(std::bit_cast<uint64_t>(number)); }
template <typename T>
void append(SegmentKey& key, T* address) {
  key.push_back(reinterpret_cast<uintptr_t>(address));
}
void append(SegmentKey& key, const Tensor& t) {
  if (!t) return key.push_back(0);
  key.push_back(1 + static_cast<uint64_t>(t.dtype()) * 256 + static_cast<uint64_t>(t.rank()) * 65536);
  append(key, t.raw());
  for (int i = 0; i < t.rank(); ++i) {
    append(key, t.dim(i));
    append(key, t.stride(i));
  }
}
template <typename Args>
requires std::is_aggregate_v<Args>
void append(SegmentKey& key, const Args& args) {
  with_members(args, [&](const auto&... members) { (append(key, members), ...); });
}

// Most operations join the stream's segment. Operations whose numbers change from step to step run at once,
// because their segments would never repeat: optimizers (lr, step), losses (1 / N), factors, initial values,
// dropout (key).
class CudaOps final : public Ops, public Fp8Ops {
 public:
  explicit CudaOps(std::shared_ptr<Device> device)
      : device_(std::move(device)), products_(device_->index()), attention_(*device_) {}
  // Queued operations point to this object, and they own memory, which owns the device.
  ~CudaOps() override { submit_quietly(*device_); }
  Device& device() override { return *device_; }

  void gemm(const GemmArgs& args, Stream& stream) override {
    check(args);
    later(stream, multiply, &products_, args);
  }
  void fp8_scale(const Fp8ScaleArgs& args, Stream& stream) override {
    if (!args.history) return run(args, stream, cuda::fp8_scale);
    check(args);
    now(stream, cuda::fp8_scale, args);  // the entry of the history is another one in each step
  }
  void fp8_codes(const Fp8CodesArgs& args, Stream& stream) override { run(args, stream, cuda::fp8_codes); }
  void fp8_gemm(const Fp8GemmArgs& args, Stream& stream) override {
    check(args);
    later(stream, multiply_codes, &products_, args);
  }
  void check_fp8(bool rows) const override { Products::check_fp8(device_->index(), rows); }
  void rmsnorm(const RmsNormArgs& args, Stream& stream) override { run(args, stream, cuda::rmsnorm); }
  void rmsnorm_backward(const RmsNormBackwardArgs& args, Stream& stream) override {
    run(args, stream, cuda::rmsnorm_backward);
  }
  void row_dot(const RowDotArgs& args, Stream& stream) override { run(args, stream, cuda::row_dot); }
  void layernorm(const LayerNormArgs& args, Stream& stream) override { run(args, stream, cuda::layernorm); }
  void layernorm_backward(const LayerNormBackwardArgs& args, Stream& stream) override {
    run(args, stream, cuda::layernorm_backward);
  }
  void activation(const ActivationArgs& args, Stream& stream) override {
    run(args, stream, cuda::activation);
  }
  void activation_backward(const ActivationBackwardArgs& args, Stream& stream) override {
    run(args, stream, cuda::activation_backward);
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
  size_t attention_workspace_bytes(const AttentionBackwardArgs& args) override {
    return attention_.workspace_bytes(args);
  }
  void embedding(const EmbeddingArgs& args, Stream& stream) override { run(args, stream, cuda::embedding); }
  void embedding_backward(const EmbeddingBackwardArgs& args, Stream& stream) override {
    run(args, stream, cuda::embedding_backward);
  }
  void loss_part(const LossPartArgs& args, Stream& stream) override { run(args, stream, cuda::loss_part); }
  void divide_by_norm(const DivideByNormArgs& args, Stream& stream) override {
    run(args, stream, cuda::divide_by_norm);
  }
  void checksum(const ChecksumArgs& args, Stream& stream) override { run(args, stream, cuda::checksum); }

  void dropout(const DropoutArgs& args, Stream& stream) override {
    check(args);
    now(stream, cuda::dropout, args);
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
  const Products& products() const { return products_; }

 private:
  static void multiply(Products* products, const GemmArgs& args, Stream& stream) {
    products->gemm(args, stream);
  }
  static void multiply_codes(Products* products, const Fp8GemmArgs& args, Stream& stream) {
    products->fp8_gemm(args, stream);
  }
  // The plan of a call is made when the call first runs, and that is before its capture.
  struct Attending {
    AttentionPaths* paths;
    friend void append(SegmentKey& key, const Attending& attending) {
      append(key, attending.paths->serial());
    }
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
    CudaStream& keeper = cuda_stream(stream);
    if (!keeper.keeps()) return now(stream, operation, arguments...);
    key_.clear();
    append(key_, operation);
    (append(key_, arguments), ...);
    keeper.segments().keep(key_, [operation, &stream, arguments...] { operation(arguments..., stream); });
  }

  const std::shared_ptr<Device> device_;
  Products products_;
  AttentionPaths attention_;
  SegmentKey key_;  // of one operation; a member, so that its memory is reused
};

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(const std::shared_ptr<Device>& device) {
  return std::make_unique<CudaOps>(device);
}

std::string describe_cuda_paths(Ops& ops) {
  auto* const mine = dynamic_cast<CudaOps*>(&ops);
  if (mine == nullptr) return {};
  return text(mine->attention_paths().describe(), "products: cuBLASLt, ", mine->products().words(),
              "\nother operations: own kernels\n");
}

}  // namespace gangway::cuda
