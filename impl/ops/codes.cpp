#include "ops/codes.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace gangway {
namespace {

CodeTable make_table(bool is_signed) {
  CodeTable table{};
  size_t count = 0;
  table.values[count++] = 0;
  table.values[count++] = 1;
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << (is_signed ? decade : decade + 1);
    for (int part = 0; part < parts; ++part) {
      const double value = std::pow(10.0, decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts);
      table.values[count++] = static_cast<float>(value);
      if (is_signed) table.values[count++] = static_cast<float>(-value);
    }
  }
  GW_CHECK(count, ==, table.values.size());
  std::sort(table.values.begin(), table.values.end());
  for (size_t i = 0; i < table.limits.size(); ++i)
    table.limits[i] = (table.values[i] + table.values[i + 1]) / 2;
  return table;
}

}  // namespace

const CodeTable& signed_codes() {
  static const CodeTable table = make_table(true);
  return table;
}
const CodeTable& unsigned_codes() {
  static const CodeTable table = make_table(false);
  return table;
}

}  // namespace gangway
