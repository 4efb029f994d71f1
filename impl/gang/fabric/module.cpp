#include "gang/fabric_module.h"

#include <gangway_build_id.h>
#include "base/error.h"
#include "gang/fabric/endpoint.h"

namespace gangway::fabric {
namespace {

std::unique_ptr<Fabric> open(const std::string& address, int peers) {
  return std::make_unique<Endpoint>(address, peers);
}

std::string describe() {
  const uint32_t version = fi_version();
  return text("libfabric ", FI_MAJOR(version), ".", FI_MINOR(version));
}

}  // namespace
}  // namespace gangway::fabric

extern "C" __attribute__((visibility("default"))) const void* gangway_fabric_module() {
  static constexpr gangway::FabricModule module{gangway::kBuildId, gangway::fabric::open,
                                                gangway::fabric::describe};
  return &module;
}
