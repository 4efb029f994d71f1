// Prints the warnings that the library logs while this object lives, as soon as they are logged: a call of
// the library that waits says so in its log, and the user should not have to guess why nothing happens.
//
// Thread rule: one thread makes and destroys the object.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace gangway::train {

class LogLines {
 public:
  explicit LogLines(bool prints);  // false: this rank prints nothing
  ~LogLines();
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

 private:
  void run();

  uint64_t next_ = 0;  // the number of the next line of the log
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace gangway::train
