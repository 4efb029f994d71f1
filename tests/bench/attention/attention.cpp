// The time of attention over documents and windows, beside the part of the scores that their queries see.
//   attention_area [--dtype f32] [--tokens 4096] [--heads 8] [--groups 2] [--width 128] [--rounds 5]
//                  [--json FILE]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/rank.h"
#include "common/report.h"
#include "common/stats.h"
#include "common/table.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/ops.h"

namespace gangway::bench {
namespace {

struct Settings {
  std::string dtype = "f32", json;
  int64_t tokens = 4096, heads = 8, groups = 2, width = 128;
  int rounds = 5;
};

struct Mask {
  std::string name;
  int64_t document, window;  // 0: none; without either, the call is causal and has no ranges
};

// One call's tensors, with random values.
class Attention {
 public:
  Attention(const Settings& s, DType dtype)
      : device_(make_device("cpu", {.index = 0, .threads = 1})), ops_(make_ops(device_)), tokens_(s.tokens) {
    const Shape of_q{1, s.tokens, s.heads, s.width}, of_k{1, s.tokens, s.groups, s.width};
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const auto random = [&](const Shape& shape, uint64_t key) {
      Tensor t = Tensor::allocate(device_->allocator(), dtype, shape);
      ops_->fill_normal(t, key, 0, 1, device_->stream());
      return t;
    };
    const auto empty = [&](DType of, const Shape& shape) {
      return Tensor::allocate(device_->allocator(), of, shape);
    };
    forward_ = {random(of_q, 1),
                random(of_k, 2),
                random(of_k, 3),
                empty(dtype, of_q),
                empty(wide, {1, s.heads, s.tokens}),
                1 / std::sqrt(static_cast<double>(s.width))};
    backward_ = {forward_.q,      forward_.k,         forward_.v,         forward_.out,       forward_.lse,
                 random(of_q, 4), empty(dtype, of_q), empty(dtype, of_k), empty(dtype, of_k), forward_.scale};
    first_ = empty(DType::i32, {1, s.tokens});
    end_ = empty(DType::i32, {1, s.tokens});
  }

  // Returns the number of scores that the queries of one head see.
  double set(const Mask& mask) {
    double area = 0;
    for (int64_t i = 0; i < tokens_; ++i) {
      int64_t first = mask.document > 0 ? i / mask.document * mask.document : 0;
      if (mask.window > 0) first = std::max(first, i - mask.window + 1);
      first_.data<int32_t>()[i] = static_cast<int32_t>(first);
      end_.data<int32_t>()[i] = static_cast<int32_t>(i + 1);
      area += static_cast<double>(i + 1 - first);
    }
    const bool ranges = mask.document > 0 || mask.window > 0;
    forward_.first_key = backward_.first_key = ranges ? first_ : Tensor{};
    forward_.end_key = backward_.end_key = ranges ? end_ : Tensor{};
    return area;
  }

  double forward_seconds(int calls) {
    return seconds(calls, [&] { ops_->attention(forward_, device_->stream()); });
  }
  double backward_seconds(int calls) {
    return seconds(calls, [&] { ops_->attention_backward(backward_, device_->stream()); });
  }

 private:
  // Returns the processor time of one call, which other processes disturb less than elapsed time.
  template <typename Call>
  static double seconds(int calls, Call&& call) {
    const double start = bench_cpu_seconds(0);
    for (int i = 0; i < calls; ++i) call();
    return (bench_cpu_seconds(0) - start) / calls;
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  int64_t tokens_;
  AttentionArgs forward_;
  AttentionBackwardArgs backward_;
  Tensor first_, end_;
};

DType dtype_of(const std::string& text) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    if (text == name(dtype)) return dtype;
  fail(Code::invalid_argument, "--dtype ", text, " is none of f64, f32, bf16, f16");
}

struct Row {
  double area = 0;
  Samples forward, backward;
};

void measure(Attention& attention, const std::vector<Mask>& masks, std::vector<Row>& rows) {
  for (size_t m = 0; m < masks.size() && !stopped(); ++m) {
    rows[m].area = attention.set(masks[m]);
    // Short calls are repeated, so that each mask is measured for a while.
    const int calls = std::max(1, static_cast<int>(rows[0].area / rows[m].area / 10));
    rows[m].forward.add(attention.forward_seconds(calls));
    rows[m].backward.add(attention.backward_seconds(calls));
  }
}

void report(const Settings& s, const std::vector<Mask>& masks, const std::vector<Row>& rows) {
  Table table({"mask", "unmasked", "forward", "time per area", "backward", "time per area"});
  nlohmann::json all;
  for (size_t m = 0; m < masks.size(); ++m) {
    const double share = rows[m].area / rows[0].area;
    const double forward = paired_ratio(rows[m].forward, rows[0].forward) / share,
                 backward = paired_ratio(rows[m].backward, rows[0].backward) / share;
    table.row({masks[m].name, percent(share), duration(rows[m].forward.median()), fixed(forward, 2),
               duration(rows[m].backward.median()), fixed(backward, 2)});
    all.push_back({{"mask", masks[m].name},
                   {"unmasked", share},
                   {"forward", rows[m].forward.median()},
                   {"backward", rows[m].backward.median()},
                   {"forward_per_area", forward},
                   {"backward_per_area", backward}});
  }
  std::printf("attention, %s, %lld tokens, %lld heads, %lld key/value heads of %lld, one thread\n",
              s.dtype.c_str(), static_cast<long long>(s.tokens), static_cast<long long>(s.heads),
              static_cast<long long>(s.groups), static_cast<long long>(s.width));
  table.print();
  save(all, s.json);
}

void run(const Settings& s) {
  Attention attention(s, dtype_of(s.dtype));
  const std::vector<Mask> masks = {{"causal", 0, 0},
                                   {"documents of 64", 64, 0},
                                   {"documents of 100", 100, 0},
                                   {"documents of 256", 256, 0},
                                   {"documents of 1024", 1024, 0},
                                   {"window of 64", 0, 64},
                                   {"window of 256", 0, 256},
                                   {"window of 1024", 0, 1024},
                                   {"documents of 1024, window of 256", 1024, 256}};
  std::vector<Row> rows(masks.size());
  for (int round = 0; round < s.rounds && !stopped(); ++round) measure(attention, masks, rows);
  report(s, masks, rows);
}

}  // namespace
}  // namespace gangway::bench

int main(int count, char** arguments) {
  using namespace gangway::bench;
  Settings settings;
  CLI::App app("Time of attention beside its unmasked area.", "attention_area");
  app.add_option("--dtype", settings.dtype);
  app.add_option("--tokens", settings.tokens)->check(CLI::PositiveNumber);
  app.add_option("--heads", settings.heads)->check(CLI::PositiveNumber);
  app.add_option("--groups", settings.groups)->check(CLI::PositiveNumber);
  app.add_option("--width", settings.width)->check(CLI::PositiveNumber);
  app.add_option("--rounds", settings.rounds)->check(CLI::PositiveNumber);
  app.add_option("--json", settings.json);
  CLI11_PARSE(app, count, arguments);
  watch_for_stop();
  try {
    run(settings);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_area: %s\n", error.what());
    return 1;
  }
  return exit_status();
}
