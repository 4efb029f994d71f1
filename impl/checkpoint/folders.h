// What saves do with folders: make them, list them, remove them, and bring them onto the disk.
//
// Thread rule: functions.
#pragma once

#include <string>
#include <vector>

namespace gangway {

// Returns the absolute path, without a slash at its end.
std::string absolute_path(const std::string& path);

// Whether the path, or what a link there names, is a folder.
bool is_folder(const std::string& path);

// Creates a folder and its missing parents; each new folder is on disk before something is put into it.
// Returns whether the last folder was created. IO.
bool make_folders(const std::string& folder);

// Lists the names in the folder `folder` of the open folder `at`; returns an errno, or 0.
int list_folder(int at, const std::string& folder, std::vector<std::string>& names);
// Returns the names in a folder, sorted. IO.
std::vector<std::string> sorted_names(const std::string& folder);

// Removes a file, or a folder with its contents, if it exists; returns an errno, or 0.
int remove_tree(int at, const std::string& name);

// fsync of a folder. IO.
void sync_folder(const std::string& folder);
// fsync of all files and folders in a folder, and of the folder itself. IO.
void sync_tree(const std::string& folder);

}  // namespace gangway
