// A module: a library that the core opens when it is needed, so that the core does not link what the module
// links. A module returns a table whose first member is the id of its build, which must equal this library's.
// A module stays loaded only after keep(): a refused module is closed, and the next call opens the file
// again.
//
// Thread rule: any thread.
#pragma once

#include <string>

namespace gangway {

class Loadable {
 public:
  // `what` is the start of each error text, such as: engine "mpi". `entry` names the function that returns
  // the table. The core looks for the file in Config::module_folder if that is set, otherwise beside the
  // library, then where the dynamic linker finds the program's libraries, then where the library was
  // installed. NOT_SUPPORTED: the file cannot be loaded or is no module. INVALID_STATE: it is of another
  // build; the text names both ids.
  Loadable(std::string what, const char* file, const char* entry);
  ~Loadable();
  Loadable(const Loadable&) = delete;
  Loadable& operator=(const Loadable&) = delete;

  const std::string& path() const { return path_; }
  const void* table() const { return table_; }
  // Keeps the module loaded until the process ends. `global` makes its symbols global, for a module whose own
  // plugins look for them there.
  void keep(bool global);

 private:
  void check(const char* entry);

  const std::string what_;
  std::string path_;
  void* handle_ = nullptr;
  const void* table_ = nullptr;
};

}  // namespace gangway
