#include "checkpoint/file_names.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "checkpoint/config_json.h"
#include "checkpoint/folders.h"

namespace gangway {
namespace {

constexpr const char* kCarried[] = {".json", ".txt", ".model", ".jinja", ".tiktoken"};

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

std::vector<std::string> files_to_carry(const std::string& folder) {
  std::vector<std::string> names = sorted_names(folder);
  std::erase_if(names, [&](const std::string& name) {
    // state.json is the record of a checkpoint of a run, an index names the files of weights.
    const bool of_checkpoint = name == kConfigName || name == "state.json" || name.ends_with(".index.json");
    return of_checkpoint || name.front() == '.' || !is_file(folder + "/" + name) ||
           std::none_of(std::begin(kCarried), std::end(kCarried),
                        [&](const char* end) { return name.ends_with(end); });
  });
  return names;
}

}  // namespace gangway
