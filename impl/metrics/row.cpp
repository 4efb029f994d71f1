#include "metrics/row.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace gangway {
namespace {

using Row = MetricsRow;

constexpr MetricsField kFields[] = {
    {"step", &Row::step},
    {"tokens", &Row::tokens},
    {"samples", &Row::samples},
    {"loss", &Row::loss},
    {"validation_loss", &Row::validation_loss},
    {"grad_norm", &Row::grad_norm},
    {"lr", &Row::lr},
    {"loss_scale", &Row::loss_scale},
    {"tokens_per_second", &Row::tokens_per_second},
    {"mfu", &Row::mfu},
    {"seconds", &Row::seconds},
    {"data_seconds", &Row::data_seconds},
    {"checkpoint_seconds", &Row::checkpoint_seconds},
    {"evaluate_seconds", &Row::evaluate_seconds},
    {"wait_seconds", &Row::wait_seconds},
    {"slowest_rank", &Row::slowest_rank},
    {"slowest_rank_seconds", &Row::slowest_rank_seconds},
    {"memory", &Row::memory},
    {"memory_peak", &Row::memory_peak},
    {"skipped", &Row::skipped},
};

// Returns the shortest text that gives the same double.
std::string shortest(double number) {
  char buffer[40];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, number);
    if (std::strtod(buffer, nullptr) == number) break;
  }
  return buffer;
}

}  // namespace

std::span<const MetricsField> metrics_fields() { return kFields; }

std::string field_text(const MetricsRow& row, const MetricsField& field) {
  if (const auto* integer = std::get_if<int64_t Row::*>(&field.member)) return std::to_string(row.**integer);
  const double number = row.*std::get<double Row::*>(field.member);
  return std::isfinite(number) ? shortest(number) : "";
}

std::string json_line(const MetricsRow& row) {
  std::string line = "{";
  for (const MetricsField& field : kFields) {
    std::string text = field_text(row, field);
    // A step whose loss is not finite has one, unlike a step without an evaluation.
    if (text.empty() && std::string_view(field.name) == "loss") text = "null";
    if (text.empty()) continue;
    line += (line.size() > 1 ? ", \"" : "\"") + std::string(field.name) + "\": " + text;
  }
  return line + "}";
}

std::string csv_header() {
  std::string line;
  for (const MetricsField& field : kFields) line += (line.empty() ? "" : ",") + std::string(field.name);
  return line;
}

std::string csv_line(const MetricsRow& row) {
  std::string line;
  for (const MetricsField& field : kFields) line += (&field == kFields ? "" : ",") + field_text(row, field);
  return line;
}

}  // namespace gangway
