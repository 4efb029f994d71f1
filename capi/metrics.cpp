#include "metrics/metrics.h"

#include <gangway/metrics.h>

#include "callbacks.h"
#include "module_handle.h"
#include "sized_structs.h"

using namespace gangway;
using namespace gangway::capi;

struct gw_metrics : gangway::capi::Handle {
  gw_metrics(const std::shared_ptr<Model>& m, MetricsOptions options)
      : model(m), metrics(m, std::move(options)) {}
  const Use& thread_use() const { return model->thread_use(); }
  std::shared_ptr<Model> model;
  Metrics metrics;
};

namespace {

gw_metrics_row row_of(const MetricsRow& r) {
  gw_metrics_row row;
  gw_metrics_row_init(&row, sizeof row);
  row.step = r.step;
  row.tokens = r.tokens;
  row.samples = r.samples;
  row.loss = r.loss;
  row.validation_loss = r.validation_loss;
  row.grad_norm = r.grad_norm;
  row.lr = r.lr;
  row.loss_scale = r.loss_scale;
  row.tokens_per_second = r.tokens_per_second;
  row.mfu = r.mfu;
  row.seconds = r.seconds;
  row.data_seconds = r.data_seconds;
  row.checkpoint_seconds = r.checkpoint_seconds;
  row.evaluate_seconds = r.evaluate_seconds;
  row.wait_seconds = r.wait_seconds;
  row.slowest_rank = r.slowest_rank;
  row.slowest_rank_seconds = r.slowest_rank_seconds;
  row.memory = r.memory;
  row.memory_peak = r.memory_peak;
  row.skipped = r.skipped;
  return row;
}

MetricsOptions options_of(const gw_metrics_options& o, const std::shared_ptr<CallerObject>& user) {
  MetricsOptions m;
  m.json_lines = text_or(o.json_lines, "");
  m.csv = text_or(o.csv, "");
  m.svg = text_or(o.svg, "");
  m.every = o.every;
  m.sequence = o.sequence;
  m.peak_flops = o.peak_flops;
  if (o.sink != nullptr)
    m.sink = [sink = o.sink, user](const MetricsRow& r) {
      const gw_metrics_row row = row_of(r);
      run_callback("sink", "gw_metrics", [&] { return sink(user->object(), &row); });
    };
  return m;
}

StepResult result_of(const gw_step_result& r) {
  StepResult s;
  s.loss = r.loss;
  s.grad_norm = r.grad_norm;
  s.tokens_per_second = r.tokens_per_second;
  s.seconds = r.seconds;
  s.exposed_wait_seconds = r.wait_seconds;
  s.lr = r.lr;
  s.weight = r.weight;
  s.step = r.step;
  s.loss_scale = r.loss_scale;
  s.tokens = r.tokens;
  if (r.skipped != 0) s.skipped = r.skip_reason == GW_SKIP_NO_WEIGHT ? Skip::no_weight : Skip::non_finite;
  return s;
}

}  // namespace

void gw_metrics_row_init(gw_metrics_row* row, size_t size) { start_struct(row, size); }
void gw_metrics_step_init(gw_metrics_step* step, size_t size) { start_struct(step, size); }

void gw_metrics_options_init(gw_metrics_options* options, size_t size) {
  gw_metrics_options d{};
  d.every = 1;
  init_struct(options, size, d);
}

gw_status gw_metrics_create(gw_module* model, const gw_metrics_options* options, gw_metrics** out_metrics) {
  auto user = std::make_shared<CallerObject>(object_of(options));
  return guarded([&] {
    gw_metrics*& result = out(out_metrics, "out_metrics");
    MetricsOptions m;
    Model& of = required(model, "model").ready();
    CollectiveCall(of.gangs(), "metrics").read([&] {
      m = options_of(read_struct(options, gw_metrics_options_init, "options"), user);
    });
    result = new gw_metrics(model->model, std::move(m));
  });
}

gw_metrics* gw_metrics_retain(gw_metrics* metrics) { return retain(metrics); }
void gw_metrics_release(gw_metrics* metrics) { release(metrics); }

gw_status gw_metrics_log(gw_metrics* metrics, const gw_step_result* result, const gw_metrics_step* step) {
  return guarded([&] {
    gw_metrics& m = required(metrics, "metrics");
    StepResult s;
    Metrics::Extra extra;
    const auto read = [&] {
      s = result_of(read_struct(&required(result, "result"), gw_step_result_init, "result"));
      const gw_metrics_step e = read_struct(step, gw_metrics_step_init, "step");
      extra = {e.samples, e.data_seconds, e.checkpoint_seconds};
    };
    // The peers wait for this rank's refusal only where the call ends an interval.
    if (m.metrics.next_log_ends_interval())
      CollectiveCall(m.model->gangs(), "metrics").read(read);
    else
      read();
    m.metrics.log(s, extra);
  });
}

gw_status gw_metrics_latest(const gw_metrics* metrics, gw_metrics_row* row, int64_t* out_rows) {
  return guarded([&] {
    int64_t& rows = out(out_rows, "out_rows");
    check_out_struct(row, "row");
    const Metrics& m = required(metrics, "metrics").metrics;
    write_struct(row, row_of(m.latest()));
    rows = m.rows();
  });
}

gw_status gw_metrics_log_evaluation(gw_metrics* metrics, double loss, double seconds) {
  return guarded([&] { required(metrics, "metrics").metrics.log_evaluation(loss, seconds); });
}

gw_status gw_metrics_flush(gw_metrics* metrics) {
  return guarded([&] { required(metrics, "metrics").metrics.flush(); });
}

gw_status gw_metrics_position(const gw_metrics* metrics, char* text, size_t capacity, size_t* out_len) {
  return guarded(
      [&] { copy_text(required(metrics, "metrics").metrics.position(), text, capacity, out_len); });
}

gw_status gw_metrics_restore(gw_metrics* metrics, const char* position) {
  return guarded([&] {
    gw_metrics& m = required(metrics, "metrics");
    std::string text;
    CollectiveCall(m.model->gangs(), "metrics").read([&] { text = &required(position, "position"); });
    m.metrics.restore(text);
  });
}
