#include "checkpoint/folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "checkpoint/output_file.h"

namespace gangway {

namespace fs = std::filesystem;

std::string absolute_path(const std::string& path) {
  std::string whole = fs::absolute(path).string();
  while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  return whole;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool make_folders(const std::string& path) {
  const fs::path folder = absolute_path(path);
  struct stat status {};
  if (stat(folder.c_str(), &status) == 0) return false;
  if (folder.has_relative_path()) make_folders(folder.parent_path().string());
  if (mkdir(folder.c_str(), 0777) != 0) {
    if (errno == EEXIST) return false;  // another process created it meanwhile
    fail_file("save: making", folder.string(), errno);
  }
  sync_folder(folder.parent_path().string());
  return true;
}

// Does not use std::filesystem, which opens folders in noexcept functions that allocate: running out of
// memory there would end the process.
int list_folder(int at, const std::string& folder, std::vector<std::string>& names) {
  const int file = openat(at, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return errno;
  DIR* const opened = fdopendir(file);
  if (opened == nullptr) {
    const int error = errno;
    close(file);
    return error;
  }
  const auto close_folder = [](DIR* open) { closedir(open); };
  const std::unique_ptr<DIR, decltype(close_folder)> owner(opened, close_folder);
  errno = 0;
  while (const dirent* entry = readdir(opened)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  return errno;
}

std::vector<std::string> sorted_names(const std::string& folder) {
  std::vector<std::string> names;
  // list_folder does not follow a link, but the folder's own name may be one.
  const int error = list_folder(AT_FDCWD, folder + "/.", names);
  if (error != 0) fail_file("listing", folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

int remove_tree(int at, const std::string& name) {
  if (unlinkat(at, name.c_str(), 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR) return errno;
  std::vector<std::string> names;
  if (const int error = list_folder(at, name, names)) return error;
  for (const std::string& below : names)
    if (const int error = remove_tree(at, name + "/" + below)) return error;
  return unlinkat(at, name.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno;
}

void sync_folder(const std::string& folder) { OutputFile(folder + "/.", O_RDONLY | O_DIRECTORY).sync(); }

void sync_tree(const std::string& folder) {
  for (const std::string& name : sorted_names(folder)) {
    const std::string path = folder + "/" + name;
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) fail_file("save: reading", path, errno);
    if (S_ISDIR(status.st_mode))
      sync_tree(path);
    else if (S_ISREG(status.st_mode))
      OutputFile(path, O_RDONLY).sync();
  }
  sync_folder(folder);
}

}  // namespace gangway
