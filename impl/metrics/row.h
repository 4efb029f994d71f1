// The metrics layer holds the numbers of a run: it completes the result of each step (tokens, MFU, memory,
// which rank the others waited for) and writes rows to files and to a picture. It contains
// nothing that changes what a run computes.
//
// This header: a row, and the table of its fields, from which the files and the bindings are written.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <variant>

namespace gangway {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

// The numbers of the steps since the row before: those of the last step, sums for the fields in seconds.
struct MetricsRow {
  int64_t step = 0;     // steps of the run, also skipped ones
  int64_t tokens = 0;   // of the run so far
  int64_t samples = 0;  // rows of the run so far
  double loss = kNoValue;
  double validation_loss = kNoValue;  // absent if there was no evaluation
  double grad_norm = kNoValue;        // absent if it was not computed
  double lr = 0, loss_scale = 1;
  double tokens_per_second = 0;  // over the seconds of the steps
  double mfu = kNoValue;         // absent if the model is no decoder
  double seconds = 0;            // in steps
  double data_seconds = 0, checkpoint_seconds = 0, evaluate_seconds = 0;
  double wait_seconds = 0;  // in collectives, the mean of all ranks
  // The rank that waited least, and how much longer the other ranks waited on average.
  int64_t slowest_rank = 0;
  double slowest_rank_seconds = 0;
  int64_t memory = 0, memory_peak = 0;  // bytes of the model on the rank that has most
  int64_t skipped = 0;                  // steps that changed nothing
};

struct MetricsField {
  const char* name;
  std::variant<int64_t MetricsRow::*, double MetricsRow::*> member;
};
std::span<const MetricsField> metrics_fields();

// A number as text; empty for an absent value.
std::string field_text(const MetricsRow& row, const MetricsField& field);
// One JSON object without line break. Absent values are left out, but for the loss, which is null if it is
// not finite.
std::string json_line(const MetricsRow& row);
std::string csv_header();
std::string csv_line(const MetricsRow& row);

}  // namespace gangway
