#include "support/placed.h"

#include <filesystem>
#include <utility>

namespace gangway {
namespace {

namespace fs = std::filesystem;

// The folder above the program that has CMake's cache; the program's own on a machine that did not build it.
fs::path build_folder() {
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  for (fs::path folder = own; folder != folder.root_path(); folder = folder.parent_path())
    if (fs::exists(folder / "CMakeCache.txt")) return folder;
  return own;
}

}  // namespace

std::string placed(const char* text) {
  static const std::string build = build_folder().string();
  static const std::string source = (build / fs::path(GANGWAY_SOURCE_FROM_BUILD)).lexically_normal().string();
  std::string path = text;
  for (const auto& [mark, folder] : {std::pair("@build@", &build), std::pair("@source@", &source)})
    for (size_t at; (at = path.find(mark)) != std::string::npos;)
      path.replace(at, std::string(mark).size(), *folder);
  return path;
}

}  // namespace gangway
