#include "gang/modules.h"

#include <array>
#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "base/loadable.h"
#include "gang/fabric_module.h"

namespace gangway {
namespace {

struct KnownMpi {
  const char* file;
  std::array<const char*, 2> variables;  // the variables that its launcher sets
};
constexpr KnownMpi kMpis[] = {{"libgangway_openmpi.so", {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"}},
                              {"libgangway_mpich.so", {"PMI_SIZE", "MPI_LOCALNRANKS"}}};

// A module of this build. It is open as long as the object lives.
class Opened {
 public:
  explicit Opened(const char* file) : library_("engine \"mpi\"", file, "gangway_mpi_module") {}
  const std::string& path() const { return library_.path(); }
  // Open MPI's own plugins look for its symbols among the global ones.
  const MpiModule& keep() {
    library_.keep(/*global=*/true);
    return *static_cast<const MpiModule*>(library_.table());
  }

 private:
  Loadable library_;
};

const char* file_of_launcher() {
  for (const KnownMpi& mpi : kMpis)
    for (const char* const variable : mpi.variables)
      if (std::getenv(variable) != nullptr) return mpi.file;
  return nullptr;
}

const MpiModule& find() {
  if (const char* const file = file_of_launcher()) return Opened(file).keep();
  try {
    return Opened(kMpis[0].file).keep();
  } catch (const Error& error) {
    if (error.code() != Code::not_supported) throw;
    return Opened(kMpis[1].file).keep();
  }
}

}  // namespace

const MpiModule& mpi_module() {
  static std::mutex mutex;
  static const MpiModule* module = nullptr;
  const std::lock_guard lock(mutex);
  if (module == nullptr) module = &find();
  module->start();
  return *module;
}

std::string describe_modules() {
  std::string lines;
  for (const KnownMpi& mpi : kMpis) {
    try {
      lines += text("engine \"mpi\": ", Opened(mpi.file).path(), "\n");
    } catch (const Error& error) {
      lines += text(mpi.file, ": ", error.message(), "\n");
    }
  }
  try {
    const Loadable fabric("GANGWAY_WIRE=fabric", "libgangway_fabric.so", "gangway_fabric_module");
    lines += text("GANGWAY_WIRE=fabric: ", fabric.path(), ", ",
                  static_cast<const FabricModule*>(fabric.table())->describe(), "\n");
  } catch (const Error& error) {
    lines += text("libgangway_fabric.so: ", error.message(), "\n");
  }
  return lines;
}

}  // namespace gangway
