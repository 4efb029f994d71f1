// Bytes that the module's own kernels move, beside the least possible.
//   kernel_bytes [--json FILE]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/table.h"
#include "timeline/kernel_traffic.h"

int main(int count, char** arguments) {
  using namespace gangway::bench;
  std::string json;
  CLI::App app("Bytes that kernels move, by count of their own accesses.", "kernel_bytes");
  app.add_option("--json", json);
  CLI11_PARSE(app, count, arguments);
  try {
    Table table({"operation", "dtype", "least, KB", "moved, KB", "ratio", "read again, KB", "why over 1.05"});
    nlohmann::json all;
    for (const gangway::timeline::KernelTraffic& row : gangway::timeline::kernel_traffic()) {
      const double ratio = row.moved / row.least;
      table.row({row.operation, row.dtype, fixed(row.least * 1e-3, 1), fixed(row.moved * 1e-3, 1),
                 fixed(ratio, 3), fixed(row.again * 1e-3, 1), ratio > 1.05 ? row.reason : ""});
      all.push_back({{"operation", row.operation},
                     {"dtype", row.dtype},
                     {"least", row.least},
                     {"moved", row.moved},
                     {"again", row.again}});
    }
    table.print();
    if (!json.empty()) std::ofstream(json) << all.dump(1) << "\n";
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_bytes: %s\n", error.what());
    return 1;
  }
  return 0;
}
