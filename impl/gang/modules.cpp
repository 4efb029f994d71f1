#include "gang/modules.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <vector>

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

// Where to look, in turn. A plain name is looked for as the libraries of this program are.
std::vector<std::string> places_of(const char* file) {
  namespace fs = std::filesystem;
  if (!config().module_folder.empty()) return {config().module_folder + "/" + file};
  std::error_code error;
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&places_of), &own) != 0 && own.dli_fname != nullptr)
    if (const fs::path beside = fs::path(own.dli_fname).replace_filename(file); fs::exists(beside, error))
      return {beside};
  std::vector<std::string> places = {file};
  if (const fs::path installed = fs::path(GANGWAY_MODULE_FOLDER) / file; fs::exists(installed, error))
    places.push_back(installed);
  return places;
}

// A module of this build, open as long as the object lives. It is closed unless it is kept, so one that is refused leaves
// nothing behind, and one that is put in its place is seen.
class Opened {
 public:
  explicit Opened(const char* file) {
    for (const std::string& place : places_of(file)) {
      path_ = place;
      if ((handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
    }
    if (handle_ == nullptr) fail(Code::not_supported, "engine \"mpi\": ", dlerror());
    try {
      check();
    } catch (...) {
      dlclose(handle_);
      throw;
    }
  }
  ~Opened() { dlclose(handle_); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  const std::string& path() const { return path_; }

  // Open MPI's own plugins look for its symbols among the global ones.
  const MpiModule& keep() {
    if (dlopen(path_.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE | RTLD_GLOBAL) == nullptr)
      fail(Code::not_supported, "engine \"mpi\": ", dlerror());
    return *module_;
  }

 private:
  void check() {
    using Entry = const MpiModule* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(handle_, "gangway_mpi_module"));
    Dl_info where;
    if (entry == nullptr || dladdr(reinterpret_cast<const void*>(entry), &where) == 0)
      fail(Code::not_supported, "engine \"mpi\": ", path_, " is no module of gangway");
    path_ = where.dli_fname;
    module_ = entry();
    if (std::string_view(module_->build_id) != kBuildId)
      fail(Code::invalid_state, "engine \"mpi\": ", path_, " is of build ", module_->build_id,
           ", but this library of build ", kBuildId, "; install both from one build");
  }

  void* handle_ = nullptr;
  std::string path_;
  const MpiModule* module_ = nullptr;
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
  module->start(poll_interrupt);
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
  return lines;
}

}  // namespace gangway
