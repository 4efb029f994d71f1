// Pipelines whose stages the caller computes: every schedule, several tensors between stages, shapes that
// change, and traces.
#include "parallel/pipeline/manual_pipeline.h"
#include "gang/agreement.h"

#include <algorithm>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "base/error_of.h"
#include "gang/begin_trace.h"
#include "parallel/parallel_testing.h"
#include "parallel/pipeline/generators.h"
#include "support/scratch.h"
#include "tools/trace_files.h"

namespace gangway::test {
namespace {

// Stage s maps (x, i) to (w_s x, i) with w_s = s + 2. The first stage makes x with `rows` rows from its
// microbatch. The loss is sum (x * i), so its gradients are known: d loss / d w_s = loss / w_s.
class Stages {
 public:
  explicit Stages(ManualPipeline& pipeline, Stream& stream)
      : pipeline_(pipeline), stream_(stream), gradients_(static_cast<size_t>(pipeline.schedule().stages())) {}

  static double weight(int stage) { return stage + 2; }
  static int64_t rows(int microbatch) { return microbatch % 3 == 2 ? 0 : 1 + microbatch; }

  // Runs one pass and returns its actions in order.
  std::vector<Action> pass() {
    std::vector<Action> done;
    for (PassAction action; pipeline_.next(action, stream_);) {
      done.push_back({action.stage, action.kind, action.microbatch});
      pipeline_.done(compute(action), stream_);
    }
    return done;
  }

  double loss = 0;
  const std::vector<double>& gradients() const { return gradients_; }

 private:
  Tensor scaled(const Tensor& x, double factor) {
    Vector values = get(x);
    for (double& v : values) v *= factor;
    return make(pipeline_.device(), DType::f64, x.shape(), values);
  }

  Values compute(const PassAction& a) {
    const bool last = pipeline_.is_last(a.stage);
    const double w = weight(a.stage);
    Values& saved = saved_[{a.stage, a.microbatch}];
    switch (a.kind) {
      case ActionKind::forward: {
        Values in = a.inputs;
        if (pipeline_.is_first(a.stage)) {
          const int64_t n = rows(a.microbatch);
          Vector x(static_cast<size_t>(n));
          std::vector<int64_t> ids;
          for (int64_t i = 0; i < n; ++i) {
            x[static_cast<size_t>(i)] = 0.5 * static_cast<double>(i + a.microbatch + 1);
            ids.push_back(i + 1);
          }
          in = {make(pipeline_.device(), DType::f64, Shape{n}, x),
                make_ids(pipeline_.device(), Shape{n}, ids)};
        }
        saved = in;
        const Tensor y = scaled(in[0], w);
        if (!last) return {y, in[1]};
        const HostMemory ids(in[1]);
        const Vector values = get(y);
        for (size_t i = 0; i < values.size(); ++i)
          loss += values[i] * static_cast<double>(ids.data<int64_t>()[i]);
        return {};
      }
      case ActionKind::backward:
      case ActionKind::input_gradient: {
        Tensor dy;
        if (last) {
          Vector d;
          const HostMemory ids(saved[1]);
          for (int64_t i = 0; i < saved[1].count(); ++i)
            d.push_back(static_cast<double>(ids.data<int64_t>()[i]));
          dy = make(pipeline_.device(), DType::f64, saved[0].shape(), d);
        } else {
          EXPECT_EQ(a.inputs.size(), 2u);
          EXPECT_FALSE(a.inputs[1]) << "integers have no gradient";
          dy = a.inputs[0];
        }
        if (a.kind == ActionKind::backward)
          add_weight(a.stage, saved[0], dy);
        else
          dy_[{a.stage, a.microbatch}] = dy;
        return pipeline_.is_first(a.stage) ? Values{} : Values{scaled(dy, w), Tensor()};
      }
      case ActionKind::weight_gradient:
        add_weight(a.stage, saved[0], dy_.at({a.stage, a.microbatch}));
        return {};
      default: return {};
    }
  }
  void add_weight(int stage, const Tensor& x, const Tensor& dy) {
    const Vector a = get(x), b = get(dy);
    for (size_t i = 0; i < a.size(); ++i) gradients_[static_cast<size_t>(stage)] += a[i] * b[i];
  }

  ManualPipeline& pipeline_;
  Stream& stream_;
  std::vector<double> gradients_;
  std::map<std::pair<int, int>, Values> saved_;
  std::map<std::pair<int, int>, Tensor> dy_;
};

ManualPipelineOptions options_of(const std::string& name, int microbatches) {
  ManualPipelineOptions options;
  options.pipeline.schedule = name;
  options.pipeline.microbatches = microbatches;
  return options;
}

double loss_by_hand(int stages, int microbatches) {
  double product = 1, sum = 0;
  for (int s = 0; s < stages; ++s) product *= Stages::weight(s);
  for (int m = 0; m < microbatches; ++m)
    for (int64_t i = 0; i < Stages::rows(m); ++i)
      sum += 0.5 * static_cast<double>((i + m + 1) * (i + 1)) * product;
  return sum;
}

std::vector<Action> computations_of(const ScheduleRow& row) {
  std::vector<Action> out;
  for (Action a : row) {
    if (!is_compute(a.kind)) continue;
    a.fused_next = false;
    out.push_back(a);
  }
  return out;
}

TEST(ManualPipeline, EveryScheduleGivesTheLossAndGradientsInItsOrder) {
  for (const std::string& name : schedule_names())
    for (const int ranks : {1, 2, 3}) {
      const int microbatches = 2 * ranks + (name == "interleaved-1f1b" ? 0 : 1);
      run_ranks(ranks, [&](Gang& root) {
        ManualPipeline pipeline(root, options_of(name, microbatches));
        const Schedule& schedule = pipeline.schedule();
        for (int pass = 0; pass < 2; ++pass) {
          Stages stages(pipeline, root.device().stream());
          EXPECT_EQ(stages.pass(), computations_of(schedule.rows[static_cast<size_t>(root.rank())])) << name;
          const double loss = loss_by_hand(schedule.stages(), microbatches);
          EXPECT_DOUBLE_EQ(root.agreement().all_sum(Channel::user, stages.loss), loss) << name;
          for (int s = 0; s < schedule.stages(); ++s)
            EXPECT_NEAR(root.agreement().all_sum(Channel::user, stages.gradients()[static_cast<size_t>(s)]),
                        loss / Stages::weight(s), 1e-9 * loss)
                << name << ", stage " << s;
        }
      });
    }
}

TEST(ManualPipeline, ForwardsAloneGiveTheLoss) {
  run_ranks(3, [&](Gang& root) {
    ManualPipeline pipeline(root, options_of("zbv", 6));
    pipeline.set_training(false);
    Stages stages(pipeline, root.device().stream());
    for (const Action& a : stages.pass()) EXPECT_EQ(a.kind, ActionKind::forward);
    EXPECT_DOUBLE_EQ(root.agreement().all_sum(Channel::user, stages.loss), loss_by_hand(6, 6));
  });
}

TEST(ManualPipeline, CallsOutOfOrderAndWrongTensorsAreRefusedAndThePassGoesOn) {
  run_ranks(2, [&](Gang& root) {
    ManualPipeline pipeline(root, options_of("1f1b", 2));
    Stream& stream = root.device().stream();
    EXPECT_EQ(error_of([&] { pipeline.done({}, stream); }).code(), Code::invalid_state);
    PassAction action;
    const Tensor x = make(root.device(), DType::f64, Shape{3}, {1, 2, 3});
    const Tensor two = make(root.device(), DType::f64, Shape{2}, {1, 2});
    while (pipeline.next(action, stream)) {
      EXPECT_EQ(error_of([&] { pipeline.next(action, stream); }).code(), Code::invalid_state);
      EXPECT_EQ(error_of([&] { pipeline.set_training(false); }).code(), Code::invalid_state);
      const bool forward = action.kind == ActionKind::forward, first = action.stage == 0;
      if (forward && first) {
        EXPECT_EQ(error_of([&] { pipeline.done({}, stream); }).code(), Code::invalid_argument);
      }
      if (!forward && !first) {
        EXPECT_EQ(error_of([&] { pipeline.done({&two, 1}, stream); }).code(), Code::invalid_argument);
        EXPECT_EQ(error_of([&] { pipeline.done({}, stream); }).code(), Code::invalid_argument);
      }
      const bool gives = forward == first;
      pipeline.done(gives ? std::span<const Tensor>(&x, 1) : std::span<const Tensor>(), stream);
    }
  });
}

TEST(ManualPipeline, DifferentSchedulesOnRanksAreReported) {
  run_ranks(2, [&](Gang& root) {
    const Error error =
        error_of([&] { ManualPipeline(root, options_of(root.rank() == 0 ? "1f1b" : "gpipe", 3)); });
    EXPECT_EQ(error.code(), Code::mismatch) << error.message();
    EXPECT_EQ(error_of([&] { ManualPipeline(root, options_of("1f1b", 0)); }).code(), Code::invalid_argument);
  });
}

TEST(ManualPipeline, DestroyingAPipelineDuringAPassBreaksThePeers) {
  run_ranks(2, [&](Gang& root) {
    auto pipeline = std::make_unique<ManualPipeline>(root, options_of("1f1b", 4));
    PassAction action;
    if (root.rank() == 0) {
      pipeline->next(action, root.device().stream());
      pipeline = nullptr;
      return;
    }
    const Error error = error_of([&] { pipeline->next(action, root.device().stream()); });
    EXPECT_EQ(error.code(), Code::aborted);
    EXPECT_NE(error.message().find("middle of a pass"), std::string::npos) << error.message();
  });
}

TEST(Trace, HasEveryActionOnceOnOneClock) {
  const Scratch folder;
  run_ranks(2, [&](Gang& root) {
    ManualPipeline pipeline(root, options_of("zb-h1", 4));
    begin_trace(root, folder.path());
    Stages(pipeline, root.device().stream()).pass();
    root.owner()->tracer().end();
    root.barrier();
    std::vector<std::string> left_out;
    std::vector<RankFile> files = rank_files(folder.path(), left_out);
    const auto all = pipeline_pass(files, -1);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_TRUE(left_out.empty());
    int64_t first = INT64_MAX;
    std::map<std::string, int64_t> ends;
    for (size_t r = 0; r < all.size(); ++r) {
      std::vector<Action> done;
      for (const TraceEvent& e : all[r]) {
        first = std::min(first, e.start_ns);
        EXPECT_LE(e.start_ns, e.end_ns);
        if (e.kind == TraceEvent::Kind::work) {
          done.push_back(e.action);
          ends[text_of(e.action)] = e.end_ns;
        }
      }
      EXPECT_EQ(done, computations_of(pipeline.schedule().rows[r]));
    }
    EXPECT_EQ(first, 0);
    EXPECT_LT(ends["0F2"], ends["1F2"]) << "rank 1 computes with what rank 0 made";
    if (root.rank() == 0) {
      const std::string path = folder.path() + "/all.json";
      const size_t count = merge_traces(files, path);
      const nlohmann::json events = nlohmann::json::parse(std::ifstream(path))["traceEvents"];
      EXPECT_EQ(events.size(), count);
      const auto of_pipeline = std::count_if(events.begin(), events.end(), [](const nlohmann::json& e) {
        return e["ph"] == "X" && e["tid"] == static_cast<int>(TraceRow::pipeline);
      });
      EXPECT_EQ(static_cast<size_t>(of_pipeline), all[0].size() + all[1].size());
    }
    root.barrier();
  });
}

}  // namespace
}  // namespace gangway::test
