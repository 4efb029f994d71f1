// A folder in which several files are replaced in one atomic step, on every file system that has symbolic
// links and either hard links or an exchange of two names.
//
//   NAME                        the file that readers open
//   .gangway-save/new/NAME      the file that the save writes
//   .gangway-save/old/NAME      the earlier file NAME
//   .gangway-save/current       a symbolic link to "old"; the commit renames a link to "new" over it
//
// commit() works in three parts. It replaces each NAME by a symbolic link to .gangway-save/current/NAME;
// readers still find the old files. It renames the link `current`; this is the commit, and readers now find
// the new files. It moves the files that `current` points at back to NAME; readers find the same files as
// before. A process that is killed at any step leaves a folder with either all old or all new files. The next
// SaveFolder of that folder repeats the last part (finish_earlier()) and removes .gangway-save. No other file
// of the folder is changed, nor is a file that NAME points at: an earlier NAME that is a symbolic link, as in
// Hugging Face's cache, is kept as a link.
//
// An earlier file gets its second name in `old` by a hard link. Where that is refused (a file of another
// user, a file system without hard links), NAME and the symbolic link in `old` change places instead.
//
// Thread rule: one thread per object. While it exists, other processes and threads cannot save into the
// folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/output_file.h"

namespace gangway {

class SaveFolder {
 public:
  // Creates the folder if it is missing, locks it, and removes the rest of a save that was killed.
  // INVALID_STATE: another save is writing to it. IO.
  explicit SaveFolder(const std::string& path);
  // Without a commit, the folder's files stay the old ones; a folder that this object created is removed.
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

  // Returns the absolute path at which the caller writes the new file of this name.
  std::string staged(const std::string& name) const;
  // Replaces the files of these names by the staged ones; removes a file that was not staged. IO: all files
  // are the old ones or, if a later step such as the last fsync fails, all are new.
  void commit(const std::vector<std::string>& names);
  // Removes a file that is not part of the committed checkpoint.
  void remove(const std::string& name);
  // Returns the names of everything in the folder.
  std::vector<std::string> names() const;

 private:
  // How an earlier NAME gets into `old`: there is none, it is there already, or by an exchange with its
  // place.
  enum class Old : uint8_t { none, kept, to_exchange };

  void lock();
  Old keep_old(const std::string& name);
  void put_link(const std::string& name, Old old);
  void make_link(const std::string& target, const std::string& at);
  void point_current(const char* at);
  void finish_earlier();
  void move_back(const std::string& name, const std::string& current);
  bool exists(const std::string& name) const;
  void sync(const std::string& name) const;

  std::string path_;  // absolute
  bool made_ = false, committed_ = false;
  OutputFile folder_;
};

}  // namespace gangway
