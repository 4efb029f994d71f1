// Keeps what signals do while a library is loaded: some libraries take the signals that end a process
// (libinfinipath, which libfabric loads, does so in a constructor, and its handler calls exit()). A rank
// that crashes must die, so that its peers see that at once.
//
// Thread rule: values of one thread; other threads do not change the signals meanwhile.
#pragma once

#include <signal.h>

#include <array>
#include <cstddef>

namespace gangway {

class KeptSignals {
 public:
  KeptSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeptSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr std::array kSignals = {SIGHUP, SIGINT, SIGQUIT, SIGILL,  SIGABRT,
                                          SIGBUS, SIGFPE, SIGSEGV, SIGPIPE, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace gangway
