// gw-info prints what this build can do on this machine: the processor, the implementation that each
// operation uses, engines and devices, and the configuration.
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "base/config.h"
#include "base/cores.h"
#include "device/cuda_module.h"
#include "gang/modules.h"
#include "ops/ops.h"
#include "tools/arguments.h"
#include "tools/check_gang.h"

namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const size_t at = line.find(": "); line.starts_with("model name") && at != std::string::npos)
      return line.substr(at + 2);
  return "unknown";
}

// Returns an empty text if there is no GPU. describe_cuda_module() tells why.
std::string paths_on_cuda() {
  try {
    const auto device = gangway::make_device("cuda");
    return gangway::text("operations on ", device->name(), ":\n",
                         gangway::describe_paths(*gangway::make_ops(device)), "\n");
  } catch (const gangway::Error&) {
    return {};
  }
}

}  // namespace

int main(int count, char** arguments) {
  using namespace gangway;
  bool checks = false;
  const tools::CommandLine line = {
      "gw-info",
      "gw-info: what gangway can do on this machine.",
      {{"--version", tools::Version{GANGWAY_VERSION}},
       {"--check", &checks,
        "under a launcher: make its gang, and print latency and bandwidth of each pair of ranks"}}};
  if (const std::optional<int> status = tools::read_arguments(line, count, arguments)) return *status;
  try {
    if (checks) {
      std::printf("%s", tools::check_gang().c_str());
      return 0;
    }
    const auto device = make_device("cpu");
    const auto ops = make_ops(device);
    std::printf("gangway %s\n\nprocessor: %s, %u hardware threads, %d for this process\n", GANGWAY_VERSION,
                processor().c_str(), std::thread::hardware_concurrency(), usable_cores());
    std::printf(
        "devices: cpu, meta (shapes and bytes only)\nengines: self, host (processes), network (hosts), "
        "threads, fake\n%s",
        describe_modules().c_str());
    std::printf("%s\noperations on the cpu:\n%s\n", describe_cuda_module().c_str(),
                describe_paths(*ops).c_str());
    std::printf("%s", paths_on_cuda().c_str());
    std::printf("configuration:\n%s", describe(config()).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gw-info: %s\n", error.what());
    return 1;
  }
  return 0;
}
