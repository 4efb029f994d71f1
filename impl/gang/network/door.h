// Where lower ranks connect to this one: the listening socket, and the connections that have come but have
// not proved yet that they are of a peer. These are limited in number and in time.
//
// Thread rule: values of one thread.
#pragma once

#include <poll.h>

#include <array>
#include <list>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "gang/network/contacts.h"

namespace gangway::network {

class Door {
 public:
  Door(std::shared_ptr<const Contacts> contacts, Listener listener)
      : contacts_(std::move(contacts)), listener_(std::move(listener)) {}

  void add_polls(std::vector<pollfd>& fds) const;  // what serve() waits for
  // Goes on with all of them, without waiting, and returns the connections that are open now.
  std::vector<Opened> serve();
  bool is_busy() const { return !strangers_.empty() || !next_accept_.passed(); }
  void close();

 private:
  struct Stranger {
    Descriptor socket;
    Deadline deadline = Deadline::after_ms(kHandshakeMs);
    std::array<uint8_t, kGreetingBytes> bytes{};
    size_t have = 0;
    Hello hello;
    Purpose purpose = Purpose::control;
    std::unique_ptr<Transcript> transcript;
    bool is_over = false;
  };
  void accept_some();
  // Each sets is_over when the connection has ended or is open. It returns true if the connection is open.
  bool serve(Stranger& one) const;
  void answer(Stranger& one) const;
  bool proves(const Stranger& one) const;

  std::shared_ptr<const Contacts> contacts_;
  Listener listener_;
  std::list<Stranger> strangers_;
  Deadline next_accept_ = Deadline::after_ms(0);
};

}  // namespace gangway::network
