#include "timeline/kernel_traffic.h"

#include <cstdlib>
#include <functional>

#include "gpu_emulation/emulator.h"
#include "gpu_emulation/traffic.h"
#include "ops/ops.h"
#include "support/host_memory.h"
#include "support/placed.h"

namespace gangway::timeline {
namespace {

constexpr char kReadTwice[] = "a row of logits has no place in shared memory, so it is read twice";
constexpr int64_t kRows = 4096, kWidth = 256, kHeadWidth = 64;

// How often an operation has to read and to write all of a tensor.
struct Operand {
  Tensor tensor;
  int reads = 0, writes = 0;
  bool shared = false;  // by all rows
};
Operand in(const Tensor& t) { return {t, 1, 0}; }
Operand out(const Tensor& t) { return {t, 0, 1}; }
Operand both(const Tensor& t) { return {t, 1, 1}; }
Operand shared(const Tensor& t) { return {t, 1, 0, true}; }

class Meter {
 public:
  Meter() : device_(make_device("cuda", {})), ops_(make_ops(device_)), temporaries_(device_->allocator()) {}

  Ops& ops() { return *ops_; }
  Stream& stream() { return device_->stream(); }
  Stack& temporaries() { return temporaries_; }
  Tensor make(DType dtype, const Shape& shape) {
    return Tensor::allocate(device_->allocator(), dtype, shape);
  }
  Tensor ids(int64_t count, int64_t range) {
    const Tensor ids = make(DType::i64, Shape{count});
    test::HostMemory host(ids);
    for (int64_t i = 0; i < count; ++i) host.data<int64_t>()[i] = i * 7 % range;
    host.write();
    return ids;
  }

  KernelTraffic& row(const std::string& operation, DType dtype, const std::vector<Operand>& operands,
                     const std::function<void()>& call) {
    stream().synchronize();
    gpu_emulation::take_moved();  // by what came before
    for (const Operand& o : operands) gpu_emulation::watch(o.tensor.raw(), o.tensor.bytes());
    call();
    stream().synchronize();
    const std::vector<gpu_emulation::Moved> moved = gpu_emulation::take_moved();
    KernelTraffic& row = rows.emplace_back();
    row.operation = operation;
    row.dtype = name(dtype);
    row.moved = static_cast<double>(moved.back().read + moved.back().written);
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& o = operands[i];
      const auto all = static_cast<double>(moved[i].read + moved[i].written),
                 once = static_cast<double>(o.tensor.bytes());
      row.least += once * (o.reads + o.writes);
      row.moved += o.shared ? once : all;
      if (o.shared) row.again += all - once;
    }
    return row;
  }

  std::vector<KernelTraffic> rows;

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Stack temporaries_;
};

void norms(Meter& m, DType t) {
  const Shape shape{kRows, kWidth};
  const Tensor x = m.make(t, shape), residual = m.make(t, shape), y = m.make(t, shape),
               sum = m.make(t, shape);
  const Tensor weight = m.make(t, Shape{kWidth}), rstd = m.make(DType::f32, Shape{kRows});
  const Tensor dweight = m.make(DType::f32, Shape{kWidth}), dx = m.make(t, shape);
  m.row("rmsnorm", t, {in(x), shared(weight), out(y), out(rstd)}, [&] {
    m.ops().rmsnorm({.x = x, .residual = {}, .weight = weight, .y = y, .sum = {}, .rstd = rstd}, m.stream());
  });
  m.row("rmsnorm + residual", t, {in(x), in(residual), shared(weight), out(y), out(sum), out(rstd)}, [&] {
    m.ops().rmsnorm({.x = x, .residual = residual, .weight = weight, .y = y, .sum = sum, .rstd = rstd},
                    m.stream());
  });
  m.row("rmsnorm_backward", t, {in(residual), in(x), shared(weight), shared(rstd), in(sum), out(dx)}, [&] {
    m.ops().rmsnorm_backward({.dy = residual,
                              .x = x,
                              .weight = weight,
                              .rstd = rstd,
                              .dsum = sum,
                              .dx = dx,
                              .dweight = {},
                              .y = {}},
                             m.stream());
  });
  KernelTraffic& row = m.row(
      "rmsnorm_backward + dweight, y", t,
      {in(residual), in(x), shared(weight), shared(rstd), in(sum), out(dx), out(y), both(dweight)}, [&] {
        m.ops().rmsnorm_backward({.dy = residual,
                                  .x = x,
                                  .weight = weight,
                                  .rstd = rstd,
                                  .dsum = sum,
                                  .dx = dx,
                                  .dweight = dweight,
                                  .y = y},
                                 m.stream());
      });
  row.limit = 1.06;
  row.reason = "256 rows of partial sums of dweight, written and read, whatever the number of rows";
}

void feed_forward(Meter& m, DType t) {
  const Shape shape{kRows, kWidth};
  const Tensor gate = m.make(t, shape), up = m.make(t, shape), y = m.make(t, shape), dy = m.make(t, shape);
  const Tensor dgate = m.make(t, shape), dup = m.make(t, shape);
  m.row("swiglu", t, {in(gate), in(up), out(y)},
        [&] { m.ops().swiglu({.gate = gate, .up = up, .y = y}, m.stream()); });
  m.row("swiglu_backward + y", t, {in(gate), in(up), in(dy), out(dgate), out(dup), out(y)}, [&] {
    m.ops().swiglu_backward({.gate = gate, .up = up, .dy = dy, .dgate = dgate, .dup = dup, .y = y},
                            m.stream());
  });
}

void rope(Meter& m, DType t) {
  const Tensor x = m.make(t, Shape{kRows, kWidth});
  const Tensor cos = m.make(DType::f32, Shape{512, kHeadWidth / 2}),
               sin = m.make(DType::f32, Shape{512, kHeadWidth / 2});
  m.row("rope", t, {both(x), shared(cos), shared(sin)}, [&] {
    m.ops().rope({.x = x,
                  .y = x,
                  .cos = cos,
                  .sin = sin,
                  .positions = {},
                  .heads = kWidth / kHeadWidth,
                  .sequence = 512},
                 m.stream());
  });
}

void embedding(Meter& m, DType t) {
  constexpr int64_t kTokens = 512;
  const Tensor table = m.make(t, Shape{kTokens, kWidth}), y = m.make(t, Shape{kTokens, kWidth});
  const Tensor dtable = m.make(DType::f32, Shape{kTokens, kWidth}), ids = m.ids(kTokens, kTokens);
  m.row("embedding", t, {in(table), shared(ids), out(y)},
        [&] { m.ops().embedding({.table = table, .ids = ids, .y = y}, m.stream()); });
  m.row("embedding_backward", t, {in(y), shared(ids), both(dtable)},
        [&] { m.ops().embedding_backward({.ids = ids, .dy = y, .dtable = dtable}, m.stream()); });
}

void head(Meter& m, DType t) {
  constexpr int64_t kTokens = 16, kVocabulary = 32768, kModel = 16;
  const Tensor x = m.make(t, Shape{kTokens, kModel}), w = m.make(t, Shape{kVocabulary, kModel}),
               dx = m.make(t, x.shape());
  const Tensor labels = m.ids(kTokens, kVocabulary), loss = m.make(DType::f64, Shape{1}),
               weight = m.make(DType::f64, Shape{1});
  HeadLossArgs args{.x = x, .w = w, .labels = labels, .loss = loss, .weight = weight, .dx = dx, .dw = {}};
  // Its logits lie in the temporaries, which nothing else uses meanwhile.
  const StackScope scope(m.temporaries());
  KernelTraffic& row =
      m.row("head_loss, of its logits", t, {}, [&] { m.ops().head_loss(args, m.temporaries(), m.stream()); });
  const double logits = static_cast<double>(kTokens * kVocabulary);
  row.least = logits * (4 + static_cast<double>(item_bytes(t)));
  row.limit = 1.72;
  row.reason = kReadTwice;
}

// Tiles of queries share keys and values, and in backward tiles of keys share queries: out of a cache.
void attention(Meter& m, DType t) {
  const Shape queries{1, 256, 4, kHeadWidth}, keys{1, 256, 2, kHeadWidth}, rows{1, 4, 256};
  const DType wide = t == DType::f64 ? DType::f64 : DType::f32;
  const Tensor q = m.make(t, queries), k = m.make(t, keys), v = m.make(t, keys), y = m.make(t, queries);
  const Tensor lse = m.make(wide, rows), dy = m.make(t, queries), dq = m.make(t, queries);
  const Tensor dk = m.make(wide, keys), dv = m.make(wide, keys);
  for (const Tensor& each : {q, k, v, dy}) m.ops().fill(each, 0.5, m.stream());
  m.row("attention", t, {in(q), shared(k), shared(v), out(y), out(lse)}, [&] {
    m.ops().attention({.q = q, .k = k, .v = v, .out = y, .lse = lse, .scale = 0.125}, m.stream());
  });
  KernelTraffic& backward = m.row(
      "attention_backward", t,
      {shared(q), shared(k), shared(v), in(y), shared(lse), shared(dy), out(dq), out(dk), out(dv)}, [&] {
        m.ops().attention_backward({.q = q,
                                    .k = k,
                                    .v = v,
                                    .out = y,
                                    .lse = lse,
                                    .dout = dy,
                                    .dq = dq,
                                    .dk = dk,
                                    .dv = dv,
                                    .scale = 0.125},
                                   m.stream());
      });
  if (t == DType::f32) {  // not on tensor cores, whose lanes keep it
    backward.limit = 1.68;
    backward.reason = "a row's sum of out * dout is read for each of its weights, out of a cache";
  }
  const Tensor sum = m.make(wide, queries), sum_lse = m.make(wide, rows);
  m.row("attention_merge", t, {both(sum), shared(sum_lse), in(y), shared(lse)}, [&] {
    m.ops().attention_merge({.out = sum, .lse = sum_lse, .part = y, .part_lse = lse}, m.stream());
  });
}

void vocabulary_parts(Meter& m, DType t) {
  constexpr int64_t kTokens = 16, kVocabulary = 32768;
  const Tensor logits = m.make(t, Shape{kTokens, kVocabulary}), labels = m.ids(kTokens, kVocabulary);
  const Tensor statistics = m.make(DType::f64, Shape{1, 3, kTokens}), loss = m.make(DType::f64, Shape{1}),
               weight = m.make(DType::f64, Shape{1});
  m.ops().fill(logits, 0.5, m.stream());
  KernelTraffic& row = m.row("loss_part", t, {both(logits), shared(labels), out(statistics)}, [&] {
    m.ops().loss_part(
        {.logits = logits, .labels = labels, .statistics = statistics.reshape(Shape{3, kTokens})},
        m.stream());
  });
  row.limit = 1.51;
  row.reason = kReadTwice;
  m.row("loss_join", t, {both(logits), shared(labels), shared(statistics), both(loss), both(weight)}, [&] {
    m.ops().loss_join({.logits = logits,
                       .labels = labels,
                       .statistics = statistics,
                       .loss = loss,
                       .weight = weight,
                       .ids = kVocabulary},
                      m.stream());
  });
}

void optimizer(Meter& m, DType gradient) {
  const Shape shape{kRows * kWidth};
  const Tensor p = m.make(DType::f32, shape), g = m.make(gradient, shape), a = m.make(DType::f32, shape),
               b = m.make(DType::f32, shape);
  const Tensor copy = m.make(DType::bf16, shape);
  m.row("adamw + copy", gradient, {both(p), in(g), both(a), both(b), out(copy)}, [&] {
    AdamWArgs args;
    args.p = p, args.g = g, args.m = a, args.v = b, args.copy = copy;
    args.control.step = 1;
    m.ops().adamw(args, m.stream());
  });
  m.row("sgd with momentum", gradient, {both(p), in(g), both(a)}, [&] {
    SgdArgs args;
    args.p = p, args.g = g, args.m = a;
    args.momentum = 0.9;
    args.control.step = 2;
    m.ops().sgd(args, m.stream());
  });
}

void elementwise(Meter& m, DType t) {
  const Shape shape{kRows * kWidth};
  const Tensor x = m.make(t, shape), y = m.make(t, shape), wide = m.make(DType::f64, shape),
               norm = m.make(DType::f64, Shape{1});
  m.row("cast to f64", t, {in(x), out(wide)}, [&] { m.ops().cast(x, wide, m.stream()); });
  m.row("fill", t, {out(y)}, [&] { m.ops().fill(y, 1, m.stream()); });
  m.row("add", t, {in(x), both(y)}, [&] { m.ops().add(x, 1, y, m.stream()); });
  m.row("scale", t, {both(y)}, [&] { m.ops().scale(y, 2, m.stream()); });
  m.row("norm_power", t, {in(y), both(norm)}, [&] { m.ops().norm_power(y, 2, norm, m.stream()); });
  if (t == DType::f32 || t == DType::f64) {
    const Tensor sum = m.make(DType::i64, Shape{1});
    m.row("checksum", t, {in(y), both(sum)}, [&] { m.ops().checksum({.x = y, .sum = sum}, m.stream()); });
  }
  const Tensor columns = m.make(DType::f32, Shape{kWidth});
  KernelTraffic& row = m.row("column_sum", t, {in(x), both(columns)}, [&] {
    m.ops().column_sum(x.reshape(Shape{kRows, kWidth}), columns, m.stream());
  });
  if (t == DType::f64) return;
  row.limit = t == DType::f32 ? 1.13 : 1.26;
  row.reason = "a row of partial sums, written and read, for each 16 rows";
}

}  // namespace

std::vector<KernelTraffic> kernel_traffic() {
  setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation/counted").c_str(), 1);
  setenv("GANGWAY_CUDNN", "0", 1);
  setenv("GANGWAY_CUDA_GRAPHS", "0", 1);  // an operation is counted where it is called
  gpu_emulation::Settings settings = gpu_emulation::settings();
  settings.seed = 0;
  settings.races = false;  // the search costs time and memory, and the operations' tests have it
  gpu_emulation::set(settings);
  Meter m;
  for (const DType t : {DType::bf16, DType::f32}) {
    norms(m, t);
    feed_forward(m, t);
    rope(m, t);
    embedding(m, t);
    head(m, t);
    attention(m, t);
    optimizer(m, t);
    elementwise(m, t);
  }
  vocabulary_parts(m, DType::f32);  // logits are never narrower
  return m.rows;
}

}  // namespace gangway::timeline
