#include "metrics/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_scalars.h"
#include "base/log.h"
#include "base/new_file.h"
#include "gang/agreement.h"
#include "metrics/flops.h"
#include "metrics/log_files.h"
#include "metrics/loss_curve.h"
#include "metrics/loss_svg.h"
#include "parallel/collective_call.h"

namespace gangway {

// The files of rank 0. The picture is drawn from `curve`, which is read from a file once and then gets each
// row:
// the files of a run of weeks would take longer to read at each save than the save itself.
struct Metrics::Files {
  explicit Files(const MetricsOptions& options) : svg(options.svg) {
    if (!options.json_lines.empty()) json.emplace(options.json_lines, LogFile::Format::json_lines);
    if (!options.csv.empty()) csv.emplace(options.csv, LogFile::Format::csv);
  }
  // `before`: the step at which the interval before ended. The row of an interval that has not ended gives
  // way to the next one.
  void append(const MetricsRow& row, int64_t before, bool ends_interval) {
    for (std::optional<LogFile>* const file : {&json, &csv}) {
      if (!*file) continue;
      if (partial) (*file)->cut_after(before);
      (*file)->append(row);
    }
    partial.reset();
    if (!ends_interval) partial = {row.step, row.loss, row.validation_loss};
    if (svg.empty() || partial) return;
    if (row.step <= curve.last_step()) forget_after(row.step - 1);
    if (is_read || log() == nullptr) curve.add({row.step, row.loss, row.validation_loss});
  }
  // Cuts later lines, and says which earlier ones are missing: a power cut may take lines that a checkpoint
  // outlives.
  void continue_after(int64_t step) {
    for (std::optional<LogFile>* const file : {&json, &csv}) {
      if (!*file) continue;
      (*file)->cut_after(step);
      const int64_t last = (*file)->last_step();
      if (last < step && step > 0)
        gangway::log(
            LogLevel::warning,
            text("metrics: ", (*file)->path(), last < 0 ? " has no rows" : text(" ends at step ", last),
                 ", and the run continues after step ", step, ": the rows of the steps between are lost"));
    }
    partial.reset();
    forget_after(step);
  }
  void sync() {
    if (json) json->sync();
    if (csv) csv->sync();
  }
  // `ended`: the step at which the last interval ended.
  void draw(int64_t ended) {
    if (svg.empty()) return;
    if (!is_read && log() != nullptr)
      log()->for_each_point([&](const LogFile::Point& point) {
        if (point.step <= ended) curve.add(point);
      });
    is_read = true;
    std::vector<LogFile::Point> points = curve.points();
    if (partial) points.push_back(*partial);
    const std::string fresh = svg + ".new";
    write_new_file("metrics: writing", fresh, draw_losses(points));
    if (std::rename(fresh.c_str(), svg.c_str()) != 0) fail_file("metrics: writing", svg, errno);
  }

  std::optional<LogFile> json, csv;
  std::string svg;
  LossCurve curve;                        // of whole intervals
  std::optional<LogFile::Point> partial;  // the last row, if its interval has not ended
  bool is_read = false;                   // `curve` has the lines of the file

 private:
  const LogFile* log() const { return json ? &*json : csv ? &*csv : nullptr; }
  void forget_after(int64_t step) {
    if (log() == nullptr) return curve.cut_after(step);
    curve = {};
    is_read = false;
  }
};

namespace {

int64_t memory_of(Model& model) {
  const MemoryUse use = model.inspect().memory();
  return static_cast<int64_t>(use.total() + use.host);
}

void check_options(const MetricsOptions& options) {
  if (options.every < 1) fail(Code::invalid_argument, "metrics: every = ", options.every, " is below 1");
  if (options.sequence < 0)
    fail(Code::invalid_argument, "metrics: sequence = ", options.sequence, " is negative");
  if (!(std::isfinite(options.peak_flops) && options.peak_flops >= 0))
    fail(Code::invalid_argument, "metrics: peak_flops = ", options.peak_flops,
         " is not a finite number >= 0");
}

// Returns a number of a position.
int64_t count_of(const JsonScalars& position, const char* name) {
  const JsonValue* const value = find_scalar(position, name);
  if (value == nullptr || value->kind != JsonValue::Kind::integer || value->integer < 0)
    fail(Code::corrupt, "metrics: the position has no number \"", name, "\"");
  return value->integer;
}

DType compute_dtype(Model& model) {
  for (const NamedParameter& named : model.inspect().parameters()) {
    const Parameter& parameter = *named.parameter;
    return parameter.compute_dtype == DType{} ? parameter.dtype : parameter.compute_dtype;
  }
  return DType::f32;
}

}  // namespace

Metrics::Metrics(std::shared_ptr<Model> model, MetricsOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  Gang& root = *model_->gangs().root();
  const CollectiveCall call(model_->gangs(), "metrics");
  call.check(
      [&] {
        check_options(options_);
        if (root.rank() == 0) files_ = std::make_unique<Files>(options_);
      },
      text("metrics, every ", options_.every, ", sequence ", options_.sequence));
  const DecoderOptions* decoder = decoder_options(model_->root());
  if (decoder == nullptr || options_.sequence == 0) return;
  flops_per_token_ = flops_per_token(*decoder, options_.sequence);
  if (options_.peak_flops > 0) return;
  measure_peak();
}

void Metrics::measure_peak() {
  ++measurements_;
  CollectiveCall(model_->gangs(), "metrics").run([&] {
    const Gang& root = *model_->gangs().root();
    const double own = measured_peak(model_->ops(), compute_dtype(*model_), model_->device().stream());
    // The mean of all ranks, so that every rank writes the same MFU.
    const double mean = model_->gangs().root()->agreement().all_sum(Channel::control, own) / root.size();
    options_.peak_flops = std::max(options_.peak_flops, mean);
  });
}

Metrics::~Metrics() = default;

void Metrics::log(const StepResult& result, const Extra& extra) {
  ++total_.step;
  total_.tokens += result.tokens;
  total_.samples += extra.samples;
  total_.loss = result.loss;
  total_.grad_norm = result.grad_norm >= 0 ? result.grad_norm : kNoValue;
  total_.lr = result.lr;
  total_.loss_scale = result.loss_scale;
  total_.seconds += result.seconds;
  total_.data_seconds += extra.data_seconds;
  total_.checkpoint_seconds += extra.checkpoint_seconds;
  total_.wait_seconds += result.exposed_wait_seconds;
  total_.skipped += result.skipped != Skip::none ? 1 : 0;
  if (result.skipped != Skip::no_weight) {
    interval_tokens_ += static_cast<double>(result.tokens);
    interval_seconds_ += result.seconds;
  }
  if (total_.step % options_.every == 0) end_interval();
}

void Metrics::log_evaluation(double loss, double seconds) {
  total_.validation_loss = loss;
  total_.evaluate_seconds += seconds;
}

void Metrics::add_ranks(const std::vector<RankNumbers>& all, MetricsRow& row) const {
  double sum = 0, least = 0;
  int64_t memory = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == 0 || all[rank].wait_seconds < least) {
      least = all[rank].wait_seconds;
      row.slowest_rank = static_cast<int64_t>(rank);
    }
    sum += all[rank].wait_seconds;
    memory = std::max(memory, all[rank].memory);
  }
  const auto ranks = static_cast<double>(all.size());
  row.wait_seconds = sum / ranks;
  row.slowest_rank_seconds = all.size() > 1 ? (sum - least) / (ranks - 1) - least : 0;
  row.memory = memory;
  row.memory_peak = std::max(row.memory_peak, memory);
}

double Metrics::utilization(double tokens_per_second) const {
  if (!(flops_per_token_ > 0 && options_.peak_flops > 0)) return kNoValue;
  return tokens_per_second * flops_per_token_ /
         (options_.peak_flops * static_cast<double>(model_->gangs().root()->size()));
}

// A utilization over 1 shows that the peak was measured while others used the machine. It is measured anew,
// and the number is left out if that does not explain it.
MetricsRow Metrics::interval_row() {
  constexpr int kMostMeasurements = 4;
  MetricsRow row = total_;
  row.tokens_per_second = interval_seconds_ > 0 ? interval_tokens_ / interval_seconds_ : 0;
  const CollectiveCall call(model_->gangs(), "metrics");
  const std::vector<RankNumbers> all = call.check([&] {
    return RankNumbers{total_.wait_seconds, utilization(row.tokens_per_second), memory_of(*model_)};
  });
  add_ranks(all, row);
  const bool beaten =
      std::any_of(all.begin(), all.end(), [](const RankNumbers& r) { return r.utilization > 1; });
  if (beaten && measurements_ > 0 && measurements_ < kMostMeasurements) measure_peak();
  row.mfu = utilization(row.tokens_per_second);
  if (measurements_ > 0 && row.mfu > 1) row.mfu = kNoValue;
  return row;
}

void Metrics::give(const MetricsRow& row, int64_t before) {
  latest_ = row;
  total_.memory_peak = row.memory_peak;
  ++rows_;
  flushed_ = row.step;
  // A full disk and a sink that fails must be errors of every rank, else the others wait in the next step.
  CollectiveCall(model_->gangs(), "metrics").check([&] {
    if (options_.sink) options_.sink(row);
    if (files_) files_->append(row, before, row.step == ended_);
  });
}

void Metrics::end_interval() {
  const MetricsRow row = interval_row();
  interval_tokens_ = interval_seconds_ = 0;
  total_.validation_loss = kNoValue;
  total_.seconds = total_.data_seconds = total_.checkpoint_seconds = 0;
  total_.evaluate_seconds = total_.wait_seconds = 0;
  total_.skipped = 0;
  give(row, std::exchange(ended_, total_.step));
}

void Metrics::flush() {
  if (total_.step > ended_ && total_.step != flushed_) give(interval_row(), ended_);
  CollectiveCall(model_->gangs(), "metrics").check([&] {
    if (!files_) return;
    files_->sync();
    files_->draw(ended_);
  });
}

std::string Metrics::position() const {
  std::string out =
      text("{\"step\": ", total_.step, ", \"tokens\": ", total_.tokens, ", \"samples\": ", total_.samples,
           ", \"ended\": ", ended_, ", \"skipped\": ", total_.skipped);
  if (std::isfinite(total_.validation_loss))
    out += ", \"validation_loss\": " + json_scalar(total_.validation_loss);
  return out + "}";
}

void Metrics::restore(const std::string& position) {
  CollectiveCall(model_->gangs(), "metrics")
      .check(
          [&] {
            if (position.find('\0') != std::string::npos)
              fail(Code::corrupt, "metrics: the position has a zero byte");
            const JsonScalars json = find_json_scalars(position).value_or(JsonScalars());
            MetricsRow total;
            total.step = count_of(json, "step");
            total.tokens = count_of(json, "tokens");
            total.samples = count_of(json, "samples");
            // An earlier release ended an interval at each checkpoint.
            const bool knows_interval = find_scalar(json, "ended") != nullptr;
            const int64_t ended = knows_interval ? count_of(json, "ended") : total.step;
            if (knows_interval) total.skipped = count_of(json, "skipped");
            const JsonValue* const evaluated = find_scalar(json, "validation_loss");
            if (evaluated != nullptr && evaluated->is_number()) total.validation_loss = evaluated->real;
            total_ = total;
            ended_ = ended;
            flushed_ = -1;
            interval_tokens_ = interval_seconds_ = 0;
            if (files_) files_->continue_after(ended_);
          },
          position);
}

}  // namespace gangway
