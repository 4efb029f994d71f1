// One side of a comparison: the processes of its ranks, started once and then told what to run, line by line,
// over a Unix socket. Ranks speak common/rank.h's protocol; between commands they sleep.
//
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gangway::bench {

struct Launch {
  std::vector<std::string> command;                              // "{socket}" stands for the socket's path
  std::vector<std::pair<std::string, std::string>> environment;  // added
  std::vector<std::string> unset;
  int copies =
      1;  // of the command; each is a process of its own, with RANKS copies the launcher is not needed
};

class Side {
 public:
  // Starts the ranks and waits for their greetings; false with `why` when they do not come.
  static std::unique_ptr<Side> start(const std::string& name, int ranks, const Launch& launch,
                                     double timeout_s, std::string* why);
  ~Side();  // tells the ranks to quit, waits for them, kills what is left
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const std::string& name() const { return name_; }
  int ranks() const { return static_cast<int>(ranks_.size()); }
  const std::string& greeting() const { return greeting_; }  // of rank 0: versions
  const std::vector<pid_t>& pids() const { return pids_; }   // by rank

  // The same line to all ranks; their replies by rank. Empty when one is lost or too late; why() says more.
  void tell(const std::string& line);
  std::vector<std::string> replies(double timeout_s);
  std::vector<std::string> ask(const std::string& line, double timeout_s) {
    tell(line);
    return replies(timeout_s);
  }
  bool alive() const { return why_.empty(); }
  const std::string& why() const { return why_; }

 private:
  Side() = default;
  bool read_line(int fd, std::string* rest, std::string* line, double until);

  std::string name_, greeting_, why_;
  std::vector<pid_t> children_, pids_;
  struct Connection {
    int fd = -1;
    std::string rest;  // read but not used yet
  };
  std::vector<Connection> ranks_;
};

// Bytes of proportional set size over the processes, 0 where one cannot be read.
double pss_bytes(const std::vector<pid_t>& pids);

// Standard output of a command, without the last end of line; "" when it fails.
std::string output_of(const std::string& command);

}  // namespace gangway::bench
