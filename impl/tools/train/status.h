// How gw-train fails: one exception with one line for the user, and an exit status that says what kind of
// failure it was (the numbers of sysexits.h).
//
// Thread rule: values.
#pragma once

#include <gangway/base.h>

#include <stdexcept>
#include <string>

namespace gangway::train {

enum class Exit : int {
  done = 0,
  usage = 64,     // arguments, run.toml, or what they name
  data = 65,      // a file is damaged
  peer = 69,      // another rank was lost, or a wait took too long
  internal = 70,  // a fault of the library, or a callback
  memory = 71,
  io = 74,
  again = 75,    // stopped as asked, and saved: the same command continues the run
  diverged = 76  // too many steps in a row were skipped, or had a loss far above the others
};

Exit exit_of(gw_status status);

class Failed : public std::runtime_error {
 public:
  Failed(Exit exit, const std::string& text, bool is_of_all = true)
      : std::runtime_error(text), exit(exit), is_of_all(is_of_all) {}
  Exit exit;
  // Whether every rank fails with this text, as with what the settings say. Of an error of the library that
  // is not known.
  bool is_of_all;
};

// Throws Failed with the library's text of the last error unless `status` is GW_OK.
void check(gw_status status);

}  // namespace gangway::train
