#include "checkpoint/save_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>

#include "base/error.h"
#include "checkpoint/folders.h"

namespace gangway {
namespace {

const std::string kStaging = ".gangway-save";
const std::string kCurrent = kStaging + "/current";

// Returns the target of a symbolic link; empty if `name` is not one.
std::string link_at(int folder, const std::string& name) {
  char to[PATH_MAX];
  const ssize_t length = readlinkat(folder, name.c_str(), to, sizeof to);
  return length < 0 ? "" : std::string(to, static_cast<size_t>(length));
}

}  // namespace

SaveFolder::SaveFolder(const std::string& path) : path_(absolute_path(path)) {
  made_ = make_folders(path_);
  // OutputFile opens with O_NOFOLLOW. The "/." makes it follow a link all the same: the folder's own name may
  // be one.
  folder_.open(path_ + "/.", O_RDONLY | O_DIRECTORY);
  lock();
  finish_earlier();
  for (const std::string& folder : {kStaging, kStaging + "/new", kStaging + "/old"})
    if (mkdirat(folder_.descriptor(), folder.c_str(), 0777) != 0)
      fail_file("save: making", path_ + "/" + folder, errno);
}

SaveFolder::~SaveFolder() {
  try {
    finish_earlier();
  } catch (...) {  // the next save into the folder settles it
  }
  if (made_ && !committed_) rmdir(path_.c_str());
}

std::string SaveFolder::staged(const std::string& name) const {
  return path_ + "/" + kStaging + "/new/" + name;
}

// On a file system without locks (some network file systems) this passes, and the caller must not save
// concurrently.
void SaveFolder::lock() {
  if (flock(folder_.descriptor(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  fail(Code::invalid_state, "save: another save into ", path_,
       " is at work; wait for its end or choose another folder");
}

void SaveFolder::commit(const std::vector<std::string>& names) {
  for (const std::string& name : names) link_old(name);
  point_current("old");
  for (const char* folder : {"/new", "/old", ""}) sync(kStaging + folder);
  const std::string link = kStaging + "/link";
  for (const std::string& name : names) {
    if (!exists(kStaging + "/old/" + name) && !exists(kStaging + "/new/" + name)) continue;
    if (symlinkat((kCurrent + "/" + name).c_str(), folder_.descriptor(), link.c_str()) != 0)
      fail_file("save: making the symbolic link", path_ + "/" + link, errno);
    if (renameat(folder_.descriptor(), link.c_str(), folder_.descriptor(), name.c_str()) != 0)
      fail_file("save: putting a symbolic link at", path_ + "/" + name, errno);
  }
  sync(".");
  point_current("new");  // the commit
  committed_ = true;
  sync(kStaging);
  finish_earlier();
}

void SaveFolder::link_old(const std::string& name) {
  const std::string kept = kStaging + "/old/" + name;
  if (linkat(folder_.descriptor(), name.c_str(), folder_.descriptor(), kept.c_str(), AT_SYMLINK_FOLLOW) == 0)
    return;
  if (errno != ENOENT)
    fail_file(text("save: making a hard link to ", path_, "/", name, ":"), path_ + "/" + kept, errno);
}

void SaveFolder::point_current(const char* at) {
  const std::string next = kStaging + "/next";
  if (symlinkat(at, folder_.descriptor(), next.c_str()) != 0)
    fail_file("save: making the symbolic link", path_ + "/" + next, errno);
  if (renameat(folder_.descriptor(), next.c_str(), folder_.descriptor(), kCurrent.c_str()) != 0)
    fail_file("save: renaming to", path_ + "/" + kCurrent, errno);
}

void SaveFolder::finish_earlier() {
  const std::string current = link_at(folder_.descriptor(), kCurrent);
  if (!current.empty()) {
    for (const std::string& name : names())
      if (link_at(folder_.descriptor(), name) == kCurrent + "/" + name)
        move_back(name, kStaging + "/" + current);
    sync(".");
  }
  const int error = remove_tree(folder_.descriptor(), kStaging);
  if (error != 0) fail_file("save: removing", path_ + "/" + kStaging, error);
}

void SaveFolder::move_back(const std::string& name, const std::string& current) {
  const std::string from = current + "/" + name;
  if (exists(from) ? renameat(folder_.descriptor(), from.c_str(), folder_.descriptor(), name.c_str()) != 0
                   : unlinkat(folder_.descriptor(), name.c_str(), 0) != 0)
    fail_file("save: moving into place", path_ + "/" + name, errno);
}

void SaveFolder::remove(const std::string& name) {
  if (unlinkat(folder_.descriptor(), name.c_str(), 0) != 0 && errno != ENOENT)
    fail_file("save: removing", path_ + "/" + name, errno);
}

std::vector<std::string> SaveFolder::names() const {
  std::vector<std::string> all;
  const int error = list_folder(folder_.descriptor(), ".", all);
  if (error != 0) fail_file("save: listing", path_, error);
  return all;
}

bool SaveFolder::exists(const std::string& name) const {
  struct stat status {};
  return fstatat(folder_.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

void SaveFolder::sync(const std::string& name) const { sync_folder(path_ + "/" + name); }

}  // namespace gangway
