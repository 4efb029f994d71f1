// One try to open a connection to a higher rank, in steps that never wait.
//
// Thread rule: values of one thread.
#pragma once

#include <poll.h>

#include <array>
#include <string>

#include "base/deadline.h"
#include "gang/network/contacts.h"

namespace gangway::network {

class Dial {
 public:
  enum class State { connects, greets, proves, open, failed };

  // The contacts outlive it.
  Dial(const Contacts& contacts, int peer, Purpose purpose, Deadline deadline);
  // Goes on as far as it can, and returns where it is then. Throws GANG if who answers does not know the key.
  State step();
  pollfd waits_for() const;  // what the next step waits for
  Opened take();             // when it is open

  // Where the last step ended. While it proves, the peer may have opened the connection and sent on it.
  State state() const { return state_; }
  const std::string& why() const { return why_; }  // the try has failed
  // Returns whether the peer's host has answered that no process listens at the address.
  bool is_refused() const { return is_refused_; }

 private:
  void connect();
  void greet();
  void prove();
  void fail_with(int reason);

  const Contacts& contacts_;
  const int peer_;
  const Purpose purpose_;
  const Deadline deadline_, connect_by_;
  State state_ = State::connects;
  Descriptor socket_;
  std::array<uint8_t, kHelloBytes> greeting_{};
  std::array<uint8_t, kAnswerBytes> answer_{};
  size_t have_ = 0;
  Secret to_lower_, to_higher_;
  std::string why_ = "the handshake did not end";
  bool is_refused_ = false;
};

}  // namespace gangway::network
