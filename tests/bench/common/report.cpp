#include "common/report.h"

#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace gangway::bench {
namespace {

volatile sig_atomic_t stop_signal = 0;

}  // namespace

void watch_for_stop() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { stop_signal = signal; };
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stopped() { return stop_signal != 0; }

int exit_status() { return stop_signal != 0 ? 128 + static_cast<int>(stop_signal) : 0; }

void save(const nlohmann::json& report, const std::string& path) {
  if (path.empty()) return;
  const std::string fresh = path + ".new";
  std::ofstream out(fresh);
  out << report.dump(1) << "\n";
  out.close();
  if (!out || std::rename(fresh.c_str(), path.c_str()) != 0)
    std::fprintf(stderr, "cannot write %s: %s\n", path.c_str(), std::strerror(errno));
}

}  // namespace gangway::bench
