#include "tools/train/run.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "tools/train/build.h"
#include "tools/train/data.h"
#include "tools/train/divergence.h"
#include "tools/train/explain.h"
#include "tools/train/log_lines.h"
#include "tools/train/norms.h"
#include "tools/train/progress.h"
#include "tools/train/sample.h"
#include "tools/train/step_text.h"
#include "tools/train/stop.h"
#include "tools/train/text_file.h"

namespace gangway::train {
namespace {

constexpr char kSettings[] = "settings";  // the name of their text in a checkpoint

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
  void load_values();  // those of the model's folder
  bool restore();      // false: the run is new
  void say_differences();
  std::string advice_on_damage(int64_t step) const;
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
  // What may be refused comes before the checkpoints, which make the run's folder.
  gw_decoder_options decoder_;
  ModelHandle model_;
  OptimizerHandle optimizer_;
  Data data_;
  CheckpointsHandle checkpoints_;
  MetricsHandle metrics_;
  Norms norms_;
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
      decoder_(decoder_of(s)),
      model_(make_model(s, gangs_.get(), decoder_)),
      optimizer_(make_optimizer(s, model_.get())),
      data_(s, gangs_.get(), decoder_.vocab),
      checkpoints_(make_checkpoints(s, gangs_.get(), talks_)),
      metrics_(make_metrics(s, model_.get(), s.text("checkpoint.folder"))),
      norms_(s, root_.get(), model_.get()),
      progress_(s.integer("train.steps")),
      divergence_(s) {
  if (talks_ && s.sources("data.train").size() > 1) print_sources(s, decoder_.vocab);
  // A checkpoint of adapters does not hold their base.
  const bool loads_base = has_adapters(s) && has_values(s);
  if (loads_base) load_values();
  if (!restore() && has_values(s) && !loads_base) load_values();
}

void Run::load_values() { check(gw_module_load(model_.get(), s_.text("model.folder").c_str(), nullptr)); }

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

// Which older checkpoint may be whole, after a damaged one.
std::string Run::advice_on_damage(int64_t step) const {
  const std::vector<int64_t> all = complete_steps(s_.text("checkpoint.folder"));
  const int64_t damaged = step >= 0 ? step : all.empty() ? 0 : all.back();
  int64_t older = -1;
  for (const int64_t there : all)
    if (there < damaged) older = there;
  if (older < 0) return "; there is no older checkpoint";
  return "; --checkpoint.step " + std::to_string(older) +
         " continues from the one before, and sets this one aside (gw-checkpoint verify --all " +
         s_.text("checkpoint.folder") + " checks them)";
}

bool Run::restore() {
  const gw_checkpoint_part own = part();
  auto options = fresh(gw_restore_options_init);
  options.no_verify = s_.flag("checkpoint.verify") ? 0 : 1;
  options.partial = s_.flag("checkpoint.strict") ? 0 : 1;
  options.step = s_.integer("checkpoint.step");
  int64_t step = -1, tokens = 0;
  const gw_status restored = gw_checkpoints_restore(checkpoints_.get(), &own, 1, &options, &step, &tokens);
  if (restored == GW_E_CORRUPT)
    throw Failed(Exit::data, std::string(gw_last_error_text()) + advice_on_damage(options.step));
  check(restored);
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
  {
    const LogLines shown(talks_);  // it tells of rows that are missing
    check(gw_metrics_restore(metrics_.get(), saved("metrics").c_str()));
  }
  const std::string unlogged = text_of([&](char* text, size_t capacity, size_t* length) {
    return gw_checkpoints_user(checkpoints_.get(), text, capacity, length);
  });
  if (!unlogged.empty()) unlogged_ = step_result_of(unlogged);
  say("continuing " + s_.text("checkpoint.folder") + " after step " + std::to_string(step_));
  say_differences();
  return true;
}

// What this run does otherwise than the one that wrote the checkpoint.
void Run::say_differences() {
  std::istringstream notes(text_of([&](char* text, size_t capacity, size_t* length) {
    return gw_checkpoints_notes(checkpoints_.get(), text, capacity, length);
  }));
  for (std::string line; std::getline(notes, line);) say("  " + line);
  size_t length = 0;
  if (gw_checkpoints_text(checkpoints_.get(), kSettings, nullptr, 0, &length) != GW_OK)
    return;  // an older one
  const std::string before = text_of([&](char* text, size_t capacity, size_t* needed) {
    return gw_checkpoints_text(checkpoints_.get(), kSettings, text, capacity, needed);
  });
  for (const std::string& line : setting_differences(before, numeric_settings(s_, gw_gang_size(root_.get()))))
    say("  " + line);
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
  if (weight > 0)
    check(gw_metrics_log_evaluation(metrics_.get(), sum / weight, seconds_since(start)));
  else
    say("step " + std::to_string(step_) + " has no validation loss: no label of the validation data counts");
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
    const std::pair<const char*, std::string> named[] = {
        {"data", data_.position()},
        {"metrics", text_of([&](char* text, size_t capacity, size_t* length) {
           return gw_metrics_position(metrics_.get(), text, capacity, length);
         })},
        {kSettings, numeric_settings(s_, gw_gang_size(root_.get()))}};
    std::vector<gw_checkpoint_text> texts;
    for (const auto& [name, value] : named) {
      texts.push_back(fresh(gw_checkpoint_text_init));
      texts.back().name = name;
      texts.back().text = value.c_str();
    }
    auto state = fresh(gw_checkpoint_state_init);
    state.step = step_;
    state.tokens = tokens_;
    state.texts = texts.data();
    state.text_count = texts.size();
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
