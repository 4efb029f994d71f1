#include "metrics/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json_scalars.h"
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
  void append(const MetricsRow& row) {
    if (json) json->append(row);
    if (csv) csv->append(row);
    if (svg.empty()) return;
    if (row.step <= curve.last_step()) forget_after(row.step - 1);
    if (is_read || log() == nullptr) curve.add({row.step, row.loss, row.validation_loss});
  }
  void cut_after(int64_t step) {
    if (json) json->cut_after(step);
    if (csv) csv->cut_after(step);
    forget_after(step);
  }
  void draw() {
    if (svg.empty()) return;
    if (!is_read && log() != nullptr)
      log()->for_each_point([&](const LogFile::Point& point) { curve.add(point); });
    is_read = true;
    const std::string fresh = svg + ".new";
    write_new_file("metrics: writing", fresh, draw_losses(curve.points()));
    if (std::rename(fresh.c_str(), svg.c_str()) != 0) fail_file("metrics: writing", svg, errno);
  }

  std::optional<LogFile> json, csv;
  std::string svg;
  LossCurve curve;
  bool is_read = false;  // `curve` has the lines of the file

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
  double peak = 0;
  call.run([&] {
    Stream& stream = model_->device().stream();
    peak = measured_peak(model_->ops(), compute_dtype(*model_), stream);
    // The mean of all ranks, so that every rank writes the same MFU.
    peak = root.agreement().all_sum(Channel::control, peak) / root.size();
  });
  options_.peak_flops = peak;
}

Metrics::~Metrics() = default;

void Metrics::log(const StepResult& result, const Extra& extra) {
  ++steps_;
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
  interval_tokens_ += static_cast<double>(result.tokens);
  if (total_.step % options_.every == 0) end_interval();
}

void Metrics::log_evaluation(double loss, double seconds) {
  total_.validation_loss = loss;
  total_.evaluate_seconds += seconds;
}

void Metrics::add_ranks(const std::vector<RankNumbers>& all) {
  double sum = 0, least = 0;
  int64_t memory = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == 0 || all[rank].wait_seconds < least) {
      least = all[rank].wait_seconds;
      total_.slowest_rank = static_cast<int64_t>(rank);
    }
    sum += all[rank].wait_seconds;
    memory = std::max(memory, all[rank].memory);
  }
  const auto ranks = static_cast<double>(all.size());
  total_.wait_seconds = sum / ranks;
  total_.slowest_rank_seconds = all.size() > 1 ? (sum - least) / (ranks - 1) - least : 0;
  total_.memory = memory;
  total_.memory_peak = std::max(total_.memory_peak, memory);
}

void Metrics::end_interval() {
  const CollectiveCall call(model_->gangs(), "metrics");
  add_ranks(call.check([&] { return RankNumbers{total_.wait_seconds, memory_of(*model_)}; }));
  total_.tokens_per_second = total_.seconds > 0 ? interval_tokens_ / total_.seconds : 0;
  if (flops_per_token_ > 0 && options_.peak_flops > 0)
    total_.mfu = total_.tokens_per_second * flops_per_token_ /
                 (options_.peak_flops * static_cast<double>(model_->gangs().root()->size()));
  const MetricsRow row = latest_ = total_;
  ++rows_;
  steps_ = 0;
  interval_tokens_ = 0;
  total_.validation_loss = kNoValue;
  total_.seconds = total_.data_seconds = total_.checkpoint_seconds = 0;
  total_.evaluate_seconds = total_.wait_seconds = 0;
  total_.skipped = 0;
  // A full disk and a sink that fails must be errors of every rank, else the others wait in the next step.
  call.check([&] {
    if (options_.sink) options_.sink(row);
    if (files_) files_->append(row);
  });
}

void Metrics::flush() {
  if (steps_ > 0) end_interval();
  CollectiveCall(model_->gangs(), "metrics").check([&] {
    if (files_) files_->draw();
  });
}

std::string Metrics::position() const {
  return text("{\"step\": ", total_.step, ", \"tokens\": ", total_.tokens, ", \"samples\": ", total_.samples,
              "}");
}

void Metrics::restore(const std::string& position) {
  CollectiveCall(model_->gangs(), "metrics")
      .check(
          [&] {
            if (position.find('\0') != std::string::npos)
              fail(Code::corrupt, "metrics: the position has a zero byte");
            const JsonScalars json = find_json_scalars(position).value_or(JsonScalars());
            const int64_t step = count_of(json, "step"), tokens = count_of(json, "tokens"),
                          samples = count_of(json, "samples");
            total_ = {};
            total_.step = step;
            total_.tokens = tokens;
            total_.samples = samples;
            steps_ = 0;
            interval_tokens_ = 0;
            if (files_) files_->cut_after(total_.step);
          },
          position);
}

}  // namespace gangway
