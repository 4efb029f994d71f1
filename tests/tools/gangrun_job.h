// Starts gangrun from a test, reads what comes out, and waits for its end.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/placed.h"
#include "support/scratch.h"

namespace gangrun_job {

using gangway::placed;

using Clock = std::chrono::steady_clock;

struct Outcome {
  int status = -1;  // exit status, or 128 + signal
  std::string out, err;
  double seconds = 0;

  bool has(const std::string& words) const { return err.find(words) != std::string::npos; }
};

class Running {
 public:
  // `terminal`: stdout is one, stderr too. `prepare` runs in gangrun's process before it becomes gangrun.
  explicit Running(std::vector<std::string> arguments, bool terminal = false,
                   const std::function<void()>& prepare = nullptr)
      : begin_(Clock::now()) {
    int master = -1, slave = -1;
    if (terminal) {
      EXPECT_EQ(openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
    } else {
      EXPECT_EQ(pipe2(out_, O_CLOEXEC), 0);
      EXPECT_EQ(pipe2(err_, O_CLOEXEC), 0);
    }
    std::string program = placed("@build@/impl/tools/gangrun");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(terminal ? slave : out_[1], 1);
      dup2(terminal ? slave : err_[1], 2);
      if (prepare) prepare();
      std::vector<char*> words{program.data()};
      for (std::string& argument : arguments) words.push_back(argument.data());
      words.push_back(nullptr);
      execv(words[0], words.data());
      _exit(127);
    }
    close(terminal ? slave : out_[1]);
    if (terminal)
      out_[0] = master;
    else
      close(err_[1]);
  }

  pid_t pid() const { return pid_; }

  // Output so far, until it holds `words`.
  bool says(const std::string& words, int seconds = 20) {
    const auto end = Clock::now() + std::chrono::seconds(seconds);
    while (seen_.out.find(words) == std::string::npos && Clock::now() < end)
      if (!pump(100)) break;
    return seen_.out.find(words) != std::string::npos;
  }

  void stop_reading() {
    for (int* const fd : {&out_[0], &err_[0]}) {
      close(*fd);
      *fd = -1;
    }
  }

  // Whether it ends in time although nothing that it says is read.
  bool ends_unread(int seconds) {
    const auto end = Clock::now() + std::chrono::seconds(seconds);
    siginfo_t facts{};
    while (waitid(P_PID, static_cast<id_t>(pid_), &facts, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           facts.si_pid == 0 && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return facts.si_pid != 0;
  }

  Outcome finish() {
    while (pump(20'000)) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    seen_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    seen_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    return seen_;
  }

 private:
  // False when both streams have ended.
  bool pump(int ms) {
    pollfd fds[2] = {{out_[0], POLLIN, 0}, {err_[0], POLLIN, 0}};
    if (out_[0] < 0 && err_[0] < 0) return false;
    if (poll(fds, 2, ms) <= 0) return true;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t n = read(fds[i].fd, bytes, sizeof bytes);
      int& fd = i == 0 ? out_[0] : err_[0];
      if (n > 0) {
        (i == 0 ? seen_.out : seen_.err).append(bytes, static_cast<size_t>(n));
      } else {
        close(fd);
        fd = -1;
      }
    }
    return out_[0] >= 0 || err_[0] >= 0;
  }

  const Clock::time_point begin_;
  int out_[2] = {-1, -1}, err_[2] = {-1, -1};
  pid_t pid_ = -1;
  Outcome seen_;
};

inline Outcome gangrun(const std::vector<std::string>& arguments) { return Running(arguments).finish(); }

inline Outcome shell(int ranks, const std::string& script, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-n", std::to_string(ranks)});
  options.insert(options.end(), {"--", "sh", "-c", script});
  return gangrun(options);
}

inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// A zombie that nobody has collected is dead.
inline bool alive(int pid) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return static_cast<bool>(file >> number >> name >> state) && state != "Z" && state != "X";
}

using Lines = std::vector<std::string>;

// A folder in which ranks tell each other how far they are: order comes from that, not from sleeping long
// enough.
class Notes {
 public:
  // Words of a shell; `note` may hold variables.
  std::string tell(const std::string& note) const { return ": > " + folder_ + "/" + note; }
  std::string wait_for(const std::string& note) const {
    return "until [ -e " + folder_ + "/" + note + " ]; do sleep 0.01; done";
  }
  bool has(const std::string& note) const { return std::filesystem::exists(folder_ + "/" + note); }

 private:
  const gangway::Scratch scratch_;
  const std::string folder_ = scratch_.path();
};

}  // namespace gangrun_job
