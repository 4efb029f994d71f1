#include "tools/train/run.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>
#include <utility>

#include "tools/train/build.h"
#include "tools/train/data.h"
#include "tools/train/divergence.h"
#include "tools/train/log_lines.h"
#include "tools/train/norms.h"
#include "tools/train/progress.h"
#include "tools/train/sample.h"
#include "tools/train/step_text.h"
#include "tools/train/stop.h"
#include "tools/train/text_file.h"

namespace gangway::train {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

class Run {
 public:
  explicit Run(const Settings& settings);
  Exit train();
  // Writes what the gangs did last into the run's folder, after a wait has failed.
  void write_flight_record() const noexcept;

 private:
  bool restore();  // false: the run is new
  gw_step_result step();
  bool is_due(const char* key) const;
  bool finish_step(const gw_step_result& result);
  void log(const gw_step_result& result);
  bool evaluate();  // false: a rank has asked to stop
  void save(bool last);
  gw_checkpoint_part part() const;
  std::string path(const char* name) const { return s_.text("checkpoint.folder") + "/" + name; }
  void say(const std::string& text) const {
    if (talks_) std::printf("%s\n", text.c_str());
    if (talks_) std::fflush(stdout);
  }

  const Settings& s_;
  const Stop stop_;
  GangsHandle gangs_;
  GangHandle root_;
  bool talks_ = false;  // on rank 0
  CheckpointsHandle checkpoints_;
  gw_decoder_options decoder_;
  ModelHandle model_;
  OptimizerHandle optimizer_;
  MetricsHandle metrics_;
  Norms norms_;
  Data data_;
  Progress progress_;
  Divergence divergence_;
  int64_t rows_ = 0;  // of metrics that were shown
  int64_t step_ = 0, tokens_ = 0, saved_ = -1;
  std::optional<gw_step_result> unlogged_;  // the last step, whose evaluation a stop has cut off
  double data_seconds_ = 0;                 // of the last batch
  double save_seconds_ = 0;                 // of the last save, for the next row of metrics
};

GangHandle root_of(gw_gangs* gangs) {
  gw_gang* root = nullptr;
  check(gw_gangs_get(gangs, "root", &root));
  return GangHandle(root);
}

CheckpointsHandle make_checkpoints(const Settings& s, gw_gangs* gangs, bool talks) {
  auto options = fresh(gw_checkpoints_options_init);
  options.keep = static_cast<int32_t>(s.integer("checkpoint.keep"));
  options.every = s.integer("checkpoint.every");
  options.synchronous = s.flag("checkpoint.synchronous") ? 1 : 0;
  const double most = s.number("checkpoint.max_file_gb") * 1e9;
  options.max_file_bytes = most < 1e18 ? static_cast<int64_t>(most) : 0;
  gw_checkpoints* checkpoints = nullptr;
  const LogLines shown(talks);  // it may wait for the lease of a run that was killed
  check(gw_checkpoints_create(gangs, s.text("checkpoint.folder").c_str(), &options, &checkpoints));
  return CheckpointsHandle(checkpoints);
}

MetricsHandle make_metrics(const Settings& s, gw_module* model, const std::string& folder) {
  const std::string lines = folder + "/metrics.jsonl", csv = folder + "/loss.csv", svg = folder + "/loss.svg";
  auto options = fresh(gw_metrics_options_init);
  options.json_lines = lines.c_str();
  options.csv = csv.c_str();
  options.svg = svg.c_str();
  options.every = static_cast<int32_t>(s.integer("metrics.every"));
  options.sequence = s.integer("data.sequence");
  options.peak_flops = s.number("metrics.peak_tflops") * 1e12;
  gw_metrics* metrics = nullptr;
  check(gw_metrics_create(model, &options, &metrics));
  return MetricsHandle(metrics);
}

Run::Run(const Settings& s)
    : s_(s),
      stop_(s.number("train.max_hours")),
      gangs_(make_gangs(s)),
      root_(root_of(gangs_.get())),
      talks_(gw_gang_rank(root_.get()) == 0),
      checkpoints_(make_checkpoints(s, gangs_.get(), talks_)),
      decoder_(decoder_of(s)),
      model_(make_model(s, gangs_.get(), decoder_)),
      optimizer_(make_optimizer(s, model_.get())),
      metrics_(make_metrics(s, model_.get(), s.text("checkpoint.folder"))),
      norms_(s, root_.get(), model_.get()),
      data_(s, gangs_.get(), decoder_.vocab),
      progress_(s.integer("train.steps")),
      divergence_(s) {
  if (!restore() && has_values(s))
    check(gw_module_load(model_.get(), s.text("model.folder").c_str(), nullptr));
}

// Calls `copy(text, capacity, out_len)` for the size, then for the text.
template <typename Copy>
std::string text_of(Copy&& copy) {
  size_t length = 0;
  check(copy(nullptr, 0, &length));
  std::string text(length + 1, '\0');
  check(copy(text.data(), text.size(), &length));
  text.resize(length);
  return text;
}

gw_checkpoint_part Run::part() const {
  auto part = fresh(gw_checkpoint_part_init);
  part.model = model_.get();
  part.optimizer = optimizer_.get();
  part.carry_from = s_.text("model.folder").c_str();
  return part;
}

bool Run::restore() {
  const gw_checkpoint_part own = part();
  auto options = fresh(gw_restore_options_init);
  options.no_verify = s_.flag("checkpoint.verify") ? 0 : 1;
  options.partial = s_.flag("checkpoint.strict") ? 0 : 1;
  options.step = s_.integer("checkpoint.step");
  int64_t step = -1, tokens = 0;
  check(gw_checkpoints_restore(checkpoints_.get(), &own, 1, &options, &step, &tokens));
  if (!norms_.restore(step)) say("norms.jsonl cannot be written: steps may be in it twice");
  if (step < 0) return false;
  step_ = saved_ = step;
  tokens_ = tokens;
  const auto saved = [&](const char* name) {
    return text_of([&](char* text, size_t capacity, size_t* length) {
      return gw_checkpoints_text(checkpoints_.get(), name, text, capacity, length);
    });
  };
  data_.restore(saved("data"), s_.flag("data.ignore_differences"));
  check(gw_metrics_restore(metrics_.get(), saved("metrics").c_str()));
  const std::string unlogged = text_of([&](char* text, size_t capacity, size_t* length) {
    return gw_checkpoints_user(checkpoints_.get(), text, capacity, length);
  });
  if (!unlogged.empty()) unlogged_ = step_result_of(unlogged);
  say("continuing " + s_.text("checkpoint.folder") + " after step " + std::to_string(step_));
  std::istringstream notes(text_of([&](char* text, size_t capacity, size_t* length) {
    return gw_checkpoints_notes(checkpoints_.get(), text, capacity, length);
  }));
  for (std::string line; std::getline(notes, line);) say("  " + line);
  return true;
}

// Whether the next step is one of those that come `key` steps apart.
bool Run::is_due(const char* key) const {
  const int64_t every = s_.integer(key);
  return every > 0 && (step_ + 1) % every == 0;
}

gw_step_result Run::step() {
  const gw_data_batch& batch = data_.next();
  auto options = fresh(gw_step_options_init);
  options.microbatches = data_.microbatches();
  options.max_grad_norm = s_.number("optimizer.max_grad_norm");
  options.stop = stop_.wanted() ? 1 : 0;
  options.replay = is_due("train.replay_every") ? 1 : 0;
  options.gradient_norms = is_due("metrics.norms_every") ? 1 : 0;
  auto result = fresh(gw_step_result_init);
  check(gw_train_step(model_.get(), optimizer_.get(), batch.batch, &options, nullptr, &result));
  if (is_due("train.check_replicas_every")) check(gw_module_check_replicas(model_.get(), nullptr));
  ++step_;
  if (options.gradient_norms != 0 && result.skip_reason != GW_SKIP_NO_WEIGHT)
    if (const std::string why = norms_.write(step_, result.loss); !why.empty())
      say("the norms of step " + std::to_string(step_) + " are lost, training goes on: " + why);
  tokens_ += result.tokens;
  data_seconds_ = batch.data_seconds;
  return result;
}

void Run::log(const gw_step_result& result) {
  auto row = fresh(gw_metrics_step_init);
  row.samples = s_.integer("train.global_batch");
  row.data_seconds = data_seconds_;
  row.checkpoint_seconds = std::exchange(save_seconds_, 0);
  const gw_status status = gw_metrics_log(metrics_.get(), &result, &row);
  if (status == GW_E_IO)
    say(std::string("the numbers of step ") + std::to_string(step_) +
        " are lost, training goes on: " + gw_last_error_text());
  else
    check(status);
  auto newest = fresh(gw_metrics_row_init);
  int64_t rows = 0;
  check(gw_metrics_latest(metrics_.get(), &newest, &rows));
  if (talks_ && rows != rows_) progress_.show(newest);
  rows_ = rows;
}

bool Run::evaluate() {
  const auto start = Clock::now();
  auto options = fresh(gw_step_options_init);
  options.microbatches = data_.microbatches();
  auto result = fresh(gw_step_result_init);
  double sum = 0, weight = 0;
  data_.begin_validation();
  for (int64_t i = 0; i < s_.integer("evaluate.batches"); ++i) {
    const gw_data_batch& batch = data_.next_validation();
    options.stop = stop_.wanted() ? 1 : 0;
    check(gw_eval_step(model_.get(), batch.batch, &options, nullptr, &result));
    if (result.stop != 0) return false;  // a part of the batches is no evaluation
    if (result.weight == 0) continue;
    sum += result.loss * static_cast<double>(result.weight);
    weight += static_cast<double>(result.weight);
  }
  if (weight > 0) check(gw_metrics_log_evaluation(metrics_.get(), sum / weight, seconds_since(start)));
  return true;
}

void Run::save(bool last) {
  if (saved_ != step_) {
    const auto start = Clock::now();
    // The rows so far are written first, so that the position of the metrics says what the files have.
    if (const gw_status status = gw_metrics_flush(metrics_.get()); status == GW_E_IO)
      say(std::string("the picture of the losses is not drawn: ") + gw_last_error_text());
    else
      check(status);
    const gw_checkpoint_part own = part();
    const std::string data = data_.position();
    const std::string metrics = text_of([&](char* text, size_t capacity, size_t* length) {
      return gw_metrics_position(metrics_.get(), text, capacity, length);
    });
    gw_checkpoint_text texts[2] = {fresh(gw_checkpoint_text_init), fresh(gw_checkpoint_text_init)};
    texts[0].name = "data";
    texts[0].text = data.c_str();
    texts[1].name = "metrics";
    texts[1].text = metrics.c_str();
    auto state = fresh(gw_checkpoint_state_init);
    state.step = step_;
    state.tokens = tokens_;
    state.texts = texts;
    state.text_count = 2;
    const std::string unlogged = unlogged_ ? to_text(*unlogged_) : "";
    state.user = unlogged.data();
    state.user_size = unlogged.size();
    gw_status status = gw_checkpoints_save(checkpoints_.get(), &own, 1, &state);
    // The error may be that of the save before, and then nothing has been begun: the second call saves this
    // step.
    if (status == GW_E_IO) {
      say(std::string("a save has failed, training goes on: ") + gw_last_error_text());
      status = gw_checkpoints_save(checkpoints_.get(), &own, 1, &state);
    }
    if (last || status != GW_E_IO) check(status);
    if (status == GW_OK) saved_ = step_;
    save_seconds_ += seconds_since(start);
  }
  if (!last) return;
  check(gw_checkpoints_wait(checkpoints_.get()));
  if (!has_adapters(s_)) return;
  // For PEFT; the checkpoint has the adapters, too. Fresh values are in the checkpoint alone.
  const char* const base = has_values(s_) ? s_.text("model.folder").c_str() : nullptr;
  check(gw_lora_save(model_.get(), path("adapter").c_str(), base, nullptr));
}

// Evaluates if the step asks for it, and then writes the step's row of metrics, which has the validation
// loss, too. Returns whether the run goes on. If it stops before the evaluation has ended, the checkpoint
// keeps the step's result, so that the same evaluation and the same row are made up when the run is
// continued.
bool Run::finish_step(const gw_step_result& result) {
  const int64_t every = s_.integer("evaluate.every");
  const bool evaluates =
      every > 0 && data_.has_validation() && (step_ % every == 0 || step_ == s_.integer("train.steps"));
  if (evaluates && (result.stop != 0 || !evaluate())) {
    unlogged_ = result;
    return false;
  }
  log(result);
  if (const std::string line = divergence_.note(step_, result); !line.empty()) say(line);
  return result.stop == 0;
}

Exit Run::train() {
  const int64_t steps = s_.integer("train.steps");
  if (step_ >= steps && !unlogged_)
    say("the run has its " + std::to_string(steps) + " steps already; raise train.steps to go on");
  bool goes_on = true;
  if (const auto last = std::exchange(unlogged_, std::nullopt)) {
    goes_on = finish_step(*last);
    if (goes_on) saved_ = -1;  // the checkpoint of this step would make the evaluation up again
  }
  while (goes_on && step_ < steps) {
    goes_on = finish_step(step());
    int32_t due = 0;
    check(gw_checkpoints_due(checkpoints_.get(), step_, &due));
    if (due != 0 && goes_on && step_ < steps) save(false);
  }
  save(true);
  if (!goes_on) {
    const std::string why = stop_.reason();
    say("stopped after step " + std::to_string(step_) + (why.empty() ? "" : " (" + why + ")") +
        "; the same command continues the run");
    return Exit::again;
  }
  write_sample(s_, model_.get(), talks_);
  check(gw_gangs_shutdown(gangs_.get(), -1));
  return Exit::done;
}

void Run::write_flight_record() const noexcept {
  try {
    size_t length = 0;
    if (gw_gang_flight_record(root_.get(), nullptr, 0, &length) != GW_OK) return;
    std::string text(length + 1, '\0');
    if (gw_gang_flight_record(root_.get(), text.data(), text.size(), &length) != GW_OK) return;
    text.resize(length);
    const std::string name = "flight-rank" + std::to_string(gw_gang_rank(root_.get())) + ".txt";
    write_text_file(path(name.c_str()), text);
  } catch (...) {  // the first failure is what the user must see
  }
}

}  // namespace

Exit run(const Settings& settings) {
  Run run(settings);
  try {
    return run.train();
  } catch (const Failed& failure) {
    if (failure.exit == Exit::peer) run.write_flight_record();
    throw;
  }
}

}  // namespace gangway::train
