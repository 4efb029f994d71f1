#include "base/loadable.h"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include <gangway_build_id.h>
#include "base/config.h"
#include "base/error.h"
#include "base/kept_signals.h"

namespace gangway {
namespace {

// Returns the paths to try, in order. A file name without a folder leaves the search to the dynamic linker,
// as for this program's libraries.
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

}  // namespace

Loadable::Loadable(std::string what, const char* file, const char* entry) : what_(std::move(what)) {
  const KeptSignals kept;
  for (const std::string& place : places_of(file)) {
    path_ = place;
    if ((handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
  }
  if (handle_ == nullptr) fail(Code::not_supported, what_, ": ", dlerror());
  try {
    check(entry);
  } catch (...) {
    dlclose(handle_);
    throw;
  }
}

Loadable::~Loadable() { dlclose(handle_); }

void Loadable::check(const char* entry) {
  using Entry = const void* (*)();
  const auto give_table = reinterpret_cast<Entry>(dlsym(handle_, entry));
  Dl_info where;
  if (give_table == nullptr || dladdr(reinterpret_cast<const void*>(give_table), &where) == 0)
    fail(Code::not_supported, what_, ": ", path_, " is no module of gangway");
  path_ = where.dli_fname;
  table_ = give_table();
  const std::string_view build = *static_cast<const char* const*>(table_);
  if (build != kBuildId)
    fail(Code::invalid_state, what_, ": ", path_, " is of build ", build, ", but this library of build ",
         kBuildId, "; install both from one build");
}

void Loadable::keep(bool global) {
  const int flags = RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE | (global ? RTLD_GLOBAL : RTLD_LOCAL);
  if (dlopen(path_.c_str(), flags) == nullptr) fail(Code::not_supported, what_, ": ", dlerror());
}

}  // namespace gangway
