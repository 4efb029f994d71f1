// A library that the core opens when it needs it, so that the core needs none of what it links: a module. It gives a table
// whose first member is the id of its build, which must be this one's. A module stays loaded only if it is kept: a
// refused one is closed, and the next call looks at the file again.
// Thread rule: any thread.
#pragma once

#include <string>

namespace gangway {

class Loadable {
 public:
  // `what` begins each refusal, as in: engine "mpi". `entry` names the function that returns the table. It is looked for in
  // Config::module_folder, else beside the library, where the program's libraries are found, where it was installed.
  // NOT_SUPPORTED: it cannot be loaded, or is no module. INVALID_STATE: it is of another build, with both ids.
  Loadable(std::string what, const char* file, const char* entry);
  ~Loadable();
  Loadable(const Loadable&) = delete;
  Loadable& operator=(const Loadable&) = delete;

  const std::string& path() const { return path_; }
  const void* table() const { return table_; }
  // For good. `global`: its own plugins look for its symbols among the global ones.
  void keep(bool global);

 private:
  void check(const char* entry);

  const std::string what_;
  std::string path_;
  void* handle_ = nullptr;
  const void* table_ = nullptr;
};

}  // namespace gangway
