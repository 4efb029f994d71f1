#include "common/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gangway::bench {

void Table::print() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    if (widths.size() < row.size()) widths.resize(row.size(), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      const std::string& cell = rows_[r][i];
      const std::string pad(widths[i] - cell.size(), ' ');
      line += i == 0 ? cell + pad : "  " + pad + cell;
    }
    std::printf("%s\n", line.c_str());
    if (r != 0) continue;
    size_t total = 0;
    for (const size_t width : widths) total += width + 2;
    std::printf("%s\n", std::string(total - 2, '-').c_str());
  }
  std::fflush(stdout);
}

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

namespace {

struct Unit {
  double factor;
  const char* name;
};
Unit unit_of(double seconds) {
  return seconds < 1e-3 ? Unit{1e6, " us"} : seconds < 1 ? Unit{1e3, " ms"} : Unit{1, " s"};
}
std::string short_number(double value) { return fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0); }

}  // namespace

std::string duration(double seconds) {
  if (std::isnan(seconds)) return "-";
  const Unit unit = unit_of(seconds);
  return short_number(seconds * unit.factor) + unit.name;
}

std::string range(double middle, double low, double high) {
  if (std::isnan(middle)) return "-";
  const Unit unit = unit_of(middle);
  return short_number(middle * unit.factor) + " (" + short_number(low * unit.factor) + ".." +
         short_number(high * unit.factor) + ")" + unit.name;
}

std::string size_text(double bytes) {
  const double mi = bytes / (1 << 20), ki = bytes / (1 << 10);
  const auto number = [](double v) { return fixed(v, v == std::floor(v) ? 0 : 1); };
  return mi >= 1 ? number(mi) + " Mi" : ki >= 1 ? number(ki) + " Ki" : number(bytes) + " B";
}

std::string percent(double ratio) { return std::isnan(ratio) ? "-" : fixed(100 * ratio, 1) + " %"; }

}  // namespace gangway::bench
