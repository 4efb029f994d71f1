// A table of text cells, printed in aligned columns.
#pragma once

#include <string>
#include <vector>

namespace gangway::bench {

class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void print() const;  // to standard output; the first column to the left, others to the right

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string fixed(double value, int decimals);              // "-" for NaN
std::string duration(double seconds);                       // "0.13 us", "4.2 ms"
std::string range(double middle, double low, double high);  // "4.2 (4.0..5.1) ms"
std::string size_text(double bytes);                        // "16 Ki", "4 Mi"
std::string percent(double ratio);                          // "83.1 %"

}  // namespace gangway::bench
