#include "checkpoint/save_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

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

// A link to a relative path is kept two folders further down, in .gangway-save/old.
const std::string kUp = "../../";
std::string moved_down(const std::string& target) { return target.front() == '/' ? target : kUp + target; }
std::string moved_up(const std::string& target) {
  return target.starts_with(kUp) ? target.substr(kUp.size()) : target;
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
  std::vector<Old> old;
  for (const std::string& name : names) old.push_back(keep_old(name));
  point_current("old");
  for (const char* folder : {"/new", "/old", ""}) sync(kStaging + folder);
  for (size_t i = 0; i < names.size(); ++i)
    if (old[i] != Old::none || exists(kStaging + "/new/" + names[i])) put_link(names[i], old[i]);
  sync(".");
  point_current("new");  // the commit
  committed_ = true;
  sync(kStaging);
  finish_earlier();
}

SaveFolder::Old SaveFolder::keep_old(const std::string& name) {
  const std::string kept = kStaging + "/old/" + name;
  struct stat status {};
  if (fstatat(folder_.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return Old::none;
    fail_file("save: reading", path_ + "/" + name, errno);
  }
  if (S_ISDIR(status.st_mode))
    fail_file("save: a folder is in the place of the file", path_ + "/" + name, EISDIR);
  if (S_ISLNK(status.st_mode)) {
    make_link(moved_down(link_at(folder_.descriptor(), name)), kept);
    return Old::kept;
  }
  if (linkat(folder_.descriptor(), name.c_str(), folder_.descriptor(), kept.c_str(), 0) == 0)
    return Old::kept;
  make_link(kCurrent + "/" + name, kept);
  return Old::to_exchange;
}

// Puts the symbolic link to .gangway-save/current/NAME at NAME.
void SaveFolder::put_link(const std::string& name, Old old) {
  const int folder = folder_.descriptor();
  if (old == Old::to_exchange) {
    const std::string kept = kStaging + "/old/" + name;
    if (renameat2(folder, kept.c_str(), folder, name.c_str(), RENAME_EXCHANGE) == 0) return;
    const int error = errno;
    fail_file("save: this user may not make a hard link to " + path_ + "/" + name +
                  ", and the file system cannot exchange it; remove it, or save into another folder:",
              path_ + "/" + name, error);
  }
  const std::string link = kStaging + "/link";
  make_link(kCurrent + "/" + name, link);
  if (renameat(folder, link.c_str(), folder, name.c_str()) != 0)
    fail_file("save: putting a symbolic link at", path_ + "/" + name, errno);
}

void SaveFolder::make_link(const std::string& target, const std::string& at) {
  if (symlinkat(target.c_str(), folder_.descriptor(), at.c_str()) != 0)
    fail_file("save: making the symbolic link", path_ + "/" + at, errno);
}

void SaveFolder::point_current(const char* at) {
  const std::string next = kStaging + "/next";
  make_link(at, next);
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
  std::string from = current + "/" + name;
  if (!exists(from)) {
    if (unlinkat(folder_.descriptor(), name.c_str(), 0) != 0)
      fail_file("save: removing", path_ + "/" + name, errno);
    return;
  }
  if (const std::string target = link_at(folder_.descriptor(), from); !target.empty()) {
    from = kStaging + "/link";
    unlinkat(folder_.descriptor(), from.c_str(), 0);  // a killed save may have left it
    make_link(moved_up(target), from);
  }
  if (renameat(folder_.descriptor(), from.c_str(), folder_.descriptor(), name.c_str()) != 0)
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
