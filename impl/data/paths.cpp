#include "data/paths.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "data/token_file.h"

namespace gangway::data {
namespace {

namespace fs = std::filesystem;

// Indexes lie beside the tokens, and no format makes tokens of them.
bool is_index(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  return ending == ".idx" || ending == ".documents" || ending.rfind(".rows", 0) == 0;
}

bool is_taken(const std::string& path, const std::string& format) {
  if (base_name(path).rfind('.', 0) == 0 || is_index(path) || !is_file(path)) return false;
  return !format.empty() || names_tokens(path);
}

std::vector<std::string> in_folder(const std::string& folder, const std::string& format) {
  std::vector<std::string> found;
  std::error_code failed;
  fs::directory_iterator entries(folder, failed);
  for (; !failed && entries != fs::directory_iterator(); entries.increment(failed))
    if (is_taken(entries->path().string(), format)) found.push_back(entries->path().string());
  if (failed) fail_file("data: listing", folder, failed.value());
  if (found.empty())
    fail(Code::not_found, "data: the folder ", folder, " has no file of tokens",
         format.empty() ? " (.u8, .u16, .u32, .bin, .npy); give a format for files of other names" : "");
  return found;
}

std::vector<std::string> matches(const std::string& pattern, const std::string& format) {
  std::vector<std::string> found;
  glob_t all{};
  const int answer = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &all);
  try {
    for (size_t i = 0; answer == 0 && i < all.gl_pathc; ++i)
      // A pattern says which files it means, so their endings need not be known.
      if (is_taken(all.gl_pathv[i], format.empty() ? "any" : format)) found.emplace_back(all.gl_pathv[i]);
  } catch (...) {
    globfree(&all);
    throw;
  }
  globfree(&all);
  if (answer == GLOB_NOSPACE) fail(Code::out_of_memory, "no memory to list ", pattern);
  if (found.empty()) fail(Code::not_found, "data: no file of tokens matches ", pattern);
  return found;
}

}  // namespace

std::vector<std::string> files_of(const std::string& path, const std::string& format) {
  if (path.empty()) fail(Code::invalid_argument, "data: the path of a source is empty");
  std::vector<std::string> found;
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    found = in_folder(path, format);
  } else if (!exists && path.find_first_of("*?[") != std::string::npos) {
    found = matches(path, format);
  } else {
    found = {path};  // a missing file is refused where it is opened
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace gangway::data
