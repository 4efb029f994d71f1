#include "gang/modules.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include <gangway_build_id.h>
#include "base/config.h"
#include "base/error.h"
#include "base/interrupt.h"

namespace gangway {
namespace {

struct KnownMpi {
  const char* file;
  std::array<const char*, 2> variables;  // what its launcher sets
};
constexpr KnownMpi kMpis[] = {{"libgangway_openmpi.so", {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"}},
                              {"libgangway_mpich.so", {"PMI_SIZE", "MPI_LOCALNRANKS"}}};

// Where the configuration says, else beside this library, else where it is installed.
std::string path_of(const char* file) {
  if (!config().module_folder.empty()) return config().module_folder + "/" + file;
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&path_of), &own) != 0 && own.dli_fname != nullptr) {
    const std::filesystem::path beside = std::filesystem::path(own.dli_fname).replace_filename(file);
    if (std::error_code error; std::filesystem::exists(beside, error)) return beside;
  }
  return std::string(GANGWAY_MODULE_FOLDER "/") + file;
}

// `scope`: RTLD_GLOBAL to use it, as Open MPI's own plugins look for its symbols among the global ones; RTLD_LOCAL
// where several MPIs are looked at.
const MpiModule& load(const char* file, int scope) {
  const std::string path = path_of(file);
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NODELETE | scope);
  if (handle == nullptr) fail(Code::not_supported, "engine \"mpi\": ", dlerror());
  using Entry = const MpiModule* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "gangway_mpi_module"));
  if (entry == nullptr) fail(Code::not_supported, "engine \"mpi\": ", path, " is no module of gangway");
  const MpiModule& module = *entry();
  if (std::string_view(module.build_id) != kBuildId)
    fail(Code::invalid_state, "engine \"mpi\": ", path, " is of build ", module.build_id,
         ", but this library of build ", kBuildId, "; install both from one build");
  return module;
}

const char* file_of_launcher() {
  for (const KnownMpi& mpi : kMpis)
    for (const char* const variable : mpi.variables)
      if (std::getenv(variable) != nullptr) return mpi.file;
  return nullptr;
}

const MpiModule& find() {
  if (const char* const file = file_of_launcher()) return load(file, RTLD_GLOBAL);
  try {
    return load(kMpis[0].file, RTLD_GLOBAL);
  } catch (const Error& error) {
    if (error.code() != Code::not_supported) throw;
    return load(kMpis[1].file, RTLD_GLOBAL);
  }
}

}  // namespace

const MpiModule& mpi_module() {
  static std::mutex mutex;
  static const MpiModule* module = nullptr;
  const std::lock_guard lock(mutex);
  if (module == nullptr) module = &find();
  module->start(poll_interrupt);
  return *module;
}

std::string describe_modules() {
  std::string lines;
  for (const KnownMpi& mpi : kMpis) {
    try {
      load(mpi.file, RTLD_LOCAL);
      lines += text("engine \"mpi\": ", path_of(mpi.file), "\n");
    } catch (const Error& error) {
      lines += text(mpi.file, ": ", error.message(), "\n");
    }
  }
  return lines;
}

}  // namespace gangway
