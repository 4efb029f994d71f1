// Forwards all operations to another Ops. A subclass does something around each call, or before some.
#pragma once

#include <functional>

#include "ops/ops.h"

namespace gangway::test {

class OpsInterceptor : public Ops {
 public:
  explicit OpsInterceptor(Ops& inner) : inner_(inner) {}
  Device& device() override { return inner_.device(); }

#define GANGWAY_OPERATION(name, Args)                     \
  void name(const Args& args, Stream& stream) override {  \
    intercept(#name, [&] { inner_.name(args, stream); }); \
  }
  GANGWAY_OPERATIONS(GANGWAY_OPERATION)
#undef GANGWAY_OPERATION

  void head_loss(const HeadLossArgs& args, Stack& temporaries, Stream& stream) override {
    intercept("head_loss", [&] { inner_.head_loss(args, temporaries, stream); });
  }
  size_t attention_workspace_bytes(const AttentionBackwardArgs& args) override {
    return inner_.attention_workspace_bytes(args);
  }
  void cast(const Tensor& x, const Tensor& y, Stream& stream) override {
    intercept("cast", [&] { inner_.cast(x, y, stream); });
  }
  void fill(const Tensor& y, double value, Stream& stream) override {
    intercept("fill", [&] { inner_.fill(y, value, stream); });
  }
  void add(const Tensor& x, double factor, const Tensor& y, Stream& stream) override {
    intercept("add", [&] { inner_.add(x, factor, y, stream); });
  }
  void scale(const Tensor& y, double factor, Stream& stream) override {
    intercept("scale", [&] { inner_.scale(y, factor, stream); });
  }
  void column_sum(const Tensor& x, const Tensor& y, Stream& stream) override {
    intercept("column_sum", [&] { inner_.column_sum(x, y, stream); });
  }
  void norm_power(const Tensor& x, double p, const Tensor& out, Stream& stream) override {
    intercept("norm_power", [&] { inner_.norm_power(x, p, out, stream); });
  }
  void fill_normal(const Tensor& y, uint64_t key, uint64_t first, double deviation, Stream& stream) override {
    intercept("fill_normal", [&] { inner_.fill_normal(y, key, first, deviation, stream); });
  }
  void id_range(const Tensor& ids, int64_t ignore, const Tensor& out, Stream& stream) override {
    intercept("id_range", [&] { inner_.id_range(ids, ignore, out, stream); });
  }

 protected:
  virtual void intercept(const char* /*operation*/, const std::function<void()>& call) { call(); }

 private:
  Ops& inner_;
};

}  // namespace gangway::test
