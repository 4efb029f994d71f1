// The rates of matrix products on one core by oneDNN and by our own kernel, for every dtype, and which of the
// two the library takes. On a processor without instructions for a dtype, oneDNN may support it and be slow.
//   products [--rounds 5] [--json FILE]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/rank.h"
#include "common/report.h"
#include "common/table.h"
#include "device/cpu/cpu_device.h"
#include "ops/cpu/elementwise.h"
#include "ops/cpu/gemm_cache.h"
#include "ops/cpu/kernels/product_kernels.h"
#include "ops/cpu/operations.h"
#include "tensor/tensor.h"

namespace gangway::bench {
namespace {

struct Layout {
  const char* name;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// Those of a model of width 1024 and feed-forward width 2816, for 512 tokens.
const Layout kLayouts[] = {{"forward NT", 512, 2816, 1024, false, true},
                           {"dX NN", 512, 1024, 2816, false, false},
                           {"dW TN", 2816, 1024, 512, true, false}};

// One product, which both sides compute.
class Case {
 public:
  Case(cpu::Context& context, const Layout& layout, DType dtype)
      : context_(context),
        layout_(layout),
        a_(filled(context, dtype, layout.m * layout.k)),
        b_(filled(context, dtype, layout.n * layout.k)),
        c_(filled(context, dtype, layout.m * layout.n)) {}

  // The least processor time of a call; NaN: oneDNN has no such product.
  double onednn(int rounds) const {
    const Layout& l = layout_;
    cpu::GemmSlice slice{.m = l.m, .n = l.n, .k = l.k, .c_row = l.n};
    slice.a_row = l.transpose_a ? l.m : l.k;
    slice.b_row = l.transpose_b ? l.k : l.n;
    slice.dtype = slice.c_dtype = a_.dtype();
    slice.transpose_a = l.transpose_a;
    slice.transpose_b = l.transpose_b;
    const cpu::GemmCache::Entry* entry = nullptr;
    context_.gemm_cache.begin();
    context_.pool.run(1, 1, [&](int, size_t, size_t) { entry = context_.gemm_cache.find(slice); });
    if (entry == nullptr) return std::numeric_limits<double>::quiet_NaN();
    const cpu::GemmPointers at{a_.raw(), b_.raw(), nullptr, c_.raw()};
    return least(rounds, [&] { context_.gemm_cache.run(*entry, 0, at, context_.scratch); });
  }
  double own(int rounds) const {
    const Layout& l = layout_;
    cpu::Product p{.m = l.m, .n = l.n, .k = l.k, .a = a_.raw(), .b = b_.raw(), .c = c_.raw()};
    p.a_row = l.transpose_a ? 1 : l.k;
    p.a_column = l.transpose_a ? l.m : 1;
    p.b_row = l.transpose_b ? 1 : l.n;
    p.b_column = l.transpose_b ? l.k : 1;
    p.c_row = l.n;
    p.a_dtype = p.b_dtype = p.c_dtype = a_.dtype();
    p.panels = context_.scratch.of<char>(0, cpu::kProductBytes);
    const cpu::ProductKernels& kernels =
        cpu::choose(context_.isa, cpu::portable::product_kernels, cpu::avx2::product_kernels,
                    cpu::avx512::product_kernels);
    return least(rounds, [&] { kernels.product(p); });
  }
  double operations() const {
    return 2 * static_cast<double>(layout_.m) * static_cast<double>(layout_.n) *
           static_cast<double>(layout_.k);
  }

 private:
  static Tensor filled(cpu::Context& context, DType dtype, int64_t count) {
    const Tensor made = Tensor::allocate(context.device.allocator(), dtype, Shape{count});
    cpu::fill_normal(context, made, static_cast<uint64_t>(count), 0, 1);
    return made;
  }
  template <typename Call>
  static double least(int rounds, const Call& call) {
    double best = std::numeric_limits<double>::infinity();
    for (int round = 0; round < rounds; ++round) {
      const double start = bench_cpu_seconds(0);
      call();
      best = std::min(best, bench_cpu_seconds(0) - start);
    }
    return best;
  }

  cpu::Context& context_;
  const Layout& layout_;
  const Tensor a_, b_, c_;
};

void run(int rounds, const std::string& json) {
  const std::shared_ptr<Device> device = make_device("cpu", {.index = 0, .threads = 1});
  auto& cpu_device = dynamic_cast<cpu::CpuDevice&>(*device);
  cpu::Scratch scratch(1);
  cpu::GemmCache cache(1);
  cpu::Context context{cpu_device, cpu_device.pool(), cpu::configured_isa(), scratch, cache};
  Table table({"product", "dtype", "oneDNN GFLOP/s", "own GFLOP/s", "taken", "of f32"});
  nlohmann::json rows = nlohmann::json::array();
  for (const Layout& layout : kLayouts) {
    double of_f32 = 0;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      if (stopped()) break;
      const Case made(context, layout, dtype);
      const double onednn = made.onednn(rounds), own = made.own(rounds), work = made.operations() / 1e9;
      const bool takes_onednn = cpu::gemm_uses_onednn(context, dtype);
      const double taken = work / (takes_onednn ? onednn : own);
      if (dtype == DType::f32) of_f32 = taken;
      table.row({layout.name, name(dtype), fixed(work / onednn, 1), fixed(work / own, 1),
                 takes_onednn ? "oneDNN" : "own", percent(taken / of_f32)});
      rows.push_back({{"product", layout.name},
                      {"dtype", name(dtype)},
                      {"onednn", std::isnan(onednn) ? nlohmann::json() : nlohmann::json(work / onednn)},
                      {"own", work / own},
                      {"takes_onednn", takes_onednn}});
    }
  }
  std::printf("instruction set: %s\n", cpu::name(context.isa));
  table.print();
  if (!json.empty()) save(rows, json);
}

}  // namespace
}  // namespace gangway::bench

int main(int count, char** arguments) {
  using namespace gangway::bench;
  int rounds = 5;
  std::string json;
  CLI::App app("Rates of matrix products by oneDNN and by the library's own kernel.", "products");
  app.add_option("--rounds", rounds)->check(CLI::PositiveNumber);
  app.add_option("--json", json);
  CLI11_PARSE(app, count, arguments);
  watch_for_stop();
  try {
    run(rounds, json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "products: %s\n", error.what());
    return 1;
  }
  return exit_status();
}
