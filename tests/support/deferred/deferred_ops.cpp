// The CPU's operations, queued on the stream. As on every device, the call checks the shapes.
#include <type_traits>

#include "base/members.h"
#include "ops/check.h"
#include "ops/fp8.h"
#include "support/deferred/deferred.h"

namespace gangway::deferred {
namespace {

void reach(Tensor& tensor) { tensor = host_address(tensor); }
template <typename Number>
requires std::is_trivially_copyable_v<Number>
void reach(Number&) {}

// Replaces each tensor of an operation's arguments, and of a record inside of them, by one with which the
// worker accesses its memory.
template <typename Record>
requires(std::is_aggregate_v<Record> && !std::is_trivially_copyable_v<Record>) void reach(Record& record) {
  with_members(record, [](auto&... members) { (reach(members), ...); });
}
template <typename Args>
void reach_all(Args& args) {
  reach(args);
}

class DeferredOps final : public Ops, public Fp8Ops {
 public:
  explicit DeferredOps(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }

#define GANGWAY_OPERATION(name, Args) \
  void name(const Args& args, Stream& stream) override { run(args, stream, &Ops::name); }
  GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION

  void fp8_scale(const Fp8ScaleArgs& args, Stream& stream) override { run(args, stream, &Fp8Ops::fp8_scale); }
  void fp8_codes(const Fp8CodesArgs& args, Stream& stream) override { run(args, stream, &Fp8Ops::fp8_codes); }
  void fp8_gemm(const Fp8GemmArgs& args, Stream& stream) override { run(args, stream, &Fp8Ops::fp8_gemm); }

  // Takes the chunk's logits from `temporaries`, so that the stack grows as in a real run. The worker has its
  // own stack.
  void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream& stream) override {
    check(args);
    const StackScope scope(temporaries);
    head_loss_logits(args, temporaries);
    HeadLossArgs here = args;
    reach_all(here);
    enqueue(stream, [here](Worker& w) { w.ops.head_loss(here, w.temporaries, w.cpu.stream()); });
  }
  void cast(const Tensor& x, const Tensor& y, Stream& stream) override {
    check_cast(x, y);
    enqueue(stream,
            [x = host_address(x), y = host_address(y)](Worker& w) { w.ops.cast(x, y, w.cpu.stream()); });
  }
  void fill(const Tensor& y, double value, Stream& stream) override {
    check_fill(y);
    enqueue(stream, [y = host_address(y), value](Worker& w) { w.ops.fill(y, value, w.cpu.stream()); });
  }
  void add(const Tensor& x, double factor, const Tensor& y, Stream& stream) override {
    check_add(x, y);
    enqueue(stream, [x = host_address(x), factor, y = host_address(y)](Worker& w) {
      w.ops.add(x, factor, y, w.cpu.stream());
    });
  }
  void scale(const Tensor& y, double factor, Stream& stream) override {
    check_scale(y);
    enqueue(stream, [y = host_address(y), factor](Worker& w) { w.ops.scale(y, factor, w.cpu.stream()); });
  }
  void column_sum(const Tensor& x, const Tensor& y, Stream& stream) override {
    check_column_sum(x, y);
    enqueue(stream, [x = host_address(x), y = host_address(y)](Worker& w) {
      w.ops.column_sum(x, y, w.cpu.stream());
    });
  }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream& stream) override {
    check_norm_power(x, p, out);
    enqueue(stream, [x = host_address(x), p, out = host_address(out)](Worker& w) {
      w.ops.norm_power(x, p, out, w.cpu.stream());
    });
  }
  void fill_normal(const Tensor& y, uint64_t key, uint64_t first_element, double deviation,
                   Stream& stream) override {
    check_fill_normal(y);
    enqueue(stream, [y = host_address(y), key, first_element, deviation](Worker& w) {
      w.ops.fill_normal(y, key, first_element, deviation, w.cpu.stream());
    });
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream) override {
    check_id_range(ids, out);
    enqueue(stream, [ids = host_address(ids), ignore, out = host_address(out)](Worker& w) {
      w.ops.id_range(ids, ignore, out, w.cpu.stream());
    });
  }

 private:
  template <typename Args>
  void run(const Args& args, Stream& stream, void (Ops::*operation)(const Args&, Stream&)) {
    check(args);
    Args here = args;
    reach_all(here);
    enqueue(stream, [here, operation](Worker& w) { (w.ops.*operation)(here, w.cpu.stream()); });
  }
  template <typename Args>
  void run(const Args& args, Stream& stream, void (Fp8Ops::*operation)(const Args&, Stream&)) {
    check(args);
    Args here = args;
    reach_all(here);
    enqueue(stream, [here, operation](Worker& w) { (fp8_ops(w.ops).*operation)(here, w.cpu.stream()); });
  }

  const std::shared_ptr<Device> device_;
};

}  // namespace

std::unique_ptr<Ops> make_deferred_ops(const std::shared_ptr<Device>& device) {
  return std::make_unique<DeferredOps>(device);
}

}  // namespace gangway::deferred
