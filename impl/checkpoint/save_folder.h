// A folder in which several files change at once, on every file system that has symbolic and hard links.
//
//   NAME                        what readers open
//   .gangway-save/new/NAME      what the save writes
//   .gangway-save/old/NAME      a hard link to what NAME was
//   .gangway-save/current       a symbolic link to "old"; the commit renames one to "new" over it
//
// commit() replaces each NAME by a symbolic link to .gangway-save/current/NAME, which still reads as before; commits; and
// moves what `current` points at back to NAME, which again reads as before. So a process that is killed at any step
// leaves a folder that reads as wholly old or wholly new; the next SaveFolder of it does the last part again ("settles")
// and removes .gangway-save. Nothing else in the folder is touched.
//
// Thread rule: one thread per object; other processes and threads that save into the folder are refused meanwhile.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/output_file.h"

namespace gangway {

class SaveFolder {
 public:
  // Makes the folder if it is missing, locks it, and removes what a killed save left. INVALID_STATE: another save is at
  // work in it. IO.
  explicit SaveFolder(const std::string& path);
  // Without a commit the folder reads as before; a folder that was made for the save is gone.
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

  // Where the new file of this name is to be written, as an absolute path.
  std::string staged(const std::string& name) const;
  // From now on readers find the staged files of these names; a name that was not staged is gone. IO: all are as before,
  // or, where the last fsync fails, all are new.
  void commit(const std::vector<std::string>& names);
  // Removes a file that readers of the committed files do not open.
  void remove(const std::string& name);
  // What lies in the folder now.
  std::vector<std::string> names() const;

 private:
  void lock();
  void keep_old(const std::string& name);
  void point_current(const char* at);
  void settle();
  void move_back(const std::string& name, const std::string& current);
  bool exists(const std::string& name) const;
  void sync(const std::string& name) const;

  std::string path_;  // absolute
  bool made_ = false, committed_ = false;
  OutputFile folder_;
};

}  // namespace gangway
