// The metrics of a run. Each rank passes the result of each step; rank 0 writes the rows.
//
// Thread rule: one thread at a time. Calls that are collective say so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metrics/row.h"
#include "parallel/model/model.h"
#include "train/step.h"

namespace gangway {

struct MetricsOptions {
  std::string json_lines, csv, svg;             // paths; "": not written. Rank 0 writes.
  int64_t every = 1;                            // a row ends at steps that are multiples
  int64_t sequence = 0;                         // tokens of a row of the batch, for MFU; 0: no MFU
  double peak_flops = 0;                        // of one rank; 0: measured when the object is made
  std::function<void(const MetricsRow&)> sink;  // called on every rank, with equal rows
};

class Metrics {
 public:
  // Collective over the model's gangs; refusals are agreed. IO: a file cannot be opened (on all ranks).
  Metrics(std::shared_ptr<Model> model, MetricsOptions options);
  ~Metrics();

  struct Extra {
    int64_t samples = 0;  // rows of the global batch
    double data_seconds = 0, checkpoint_seconds = 0;
  };
  // Adds the result of a step. Collective: where the step ends an interval, ranks exchange their waiting
  // times, and rank 0 writes the row.
  void log(const StepResult& result, const Extra& extra);
  // Adds an evaluation. The next row has its loss, even if flush() writes that row. Local.
  void log_evaluation(double loss, double seconds);
  // Writes a row of the interval that has not ended, and the picture, and syncs the files. The row that ends
  // the interval takes the place of that row, so that rows end at the same steps whenever a run saves.
  // Collective.
  void flush();

  // Step, tokens and samples so far, and what the interval has, as UTF-8 text for a checkpoint. restore()
  // takes it back, cuts the lines behind the last interval from the files and continues. It logs a warning if
  // a file lacks rows before. Collective. CORRUPT: not such a text.
  std::string position() const;
  void restore(const std::string& position);
  // The newest row; that of a run without rows has no step.
  const MetricsRow& latest() const { return latest_; }
  int64_t rows() const { return rows_; }  // how many this object has given
  // Whether the next log() ends an interval.
  bool next_log_ends_interval() const { return (total_.step + 1) % options_.every == 0; }

 private:
  struct Files;
  // The numbers of a rank that a row needs from all ranks.
  struct RankNumbers {
    double wait_seconds = 0, utilization = 0;
    int64_t memory = 0;
  };
  MetricsRow interval_row();  // collective
  void add_ranks(const std::vector<RankNumbers>& all, MetricsRow& row) const;
  void measure_peak();
  double utilization(double tokens_per_second) const;
  void give(const MetricsRow& row, int64_t before);
  void end_interval();

  std::shared_ptr<Model> model_;
  MetricsOptions options_;
  double flops_per_token_ = 0;
  MetricsRow total_;  // the interval's row so far
  MetricsRow latest_;
  int64_t rows_ = 0;
  double interval_tokens_ = 0, interval_seconds_ = 0;  // of steps that computed
  int64_t ended_ = 0;                                  // the step at which the last interval ended
  int64_t flushed_ = -1;                               // the step of the newest row; -1: of none yet
  int measurements_ = 0;                               // of the peak; 0: it was given
  std::unique_ptr<Files> files_;                       // on rank 0
};

}  // namespace gangway
