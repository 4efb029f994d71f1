#include "gang/network/connector.h"

#include <algorithm>

namespace gangway::network {
namespace {

constexpr int64_t kPauseMs = 50;  // between two tries

}  // namespace

void Connector::want(int peer) {
  wanted_.push_back(
      {peer, Deadline::after_ms(contacts_->options.timeout_ms), Deadline::after_ms(0), nullptr, "", false});
}

void Connector::forget(int peer) noexcept {
  wanted_.remove_if([&](const Wanted& one) { return one.peer == peer; });
}

std::string Connector::why_not(int peer) const {
  const auto found =
      std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& one) { return one.peer == peer; });
  return found == wanted_.end() ? "" : found->why;
}

bool Connector::ends_with_this_try(int peer) noexcept {
  for (Wanted& one : wanted_)
    if (one.peer == peer && one.dial != nullptr && one.dial->state() == Dial::State::proves)
      return one.is_last_try = true;
  return false;
}

void Connector::add_polls(std::vector<pollfd>& fds) const {
  door_.add_polls(fds);
  for (const Wanted& one : wanted_)
    if (one.dial != nullptr) fds.push_back(one.dial->waits_for());
}

std::vector<Opened> Connector::serve() {
  std::vector<Opened> opened = door_.serve();
  wanted_.remove_if([&](Wanted& one) { return go_on(one, opened); });
  return opened;
}

bool Connector::go_on(Wanted& one, std::vector<Opened>& opened) {
  if (one.dial == nullptr && one.next_try.passed())
    one.dial = std::make_unique<Dial>(*contacts_, one.peer, Purpose::data, Deadline::never());
  try {
    const Dial::State state = one.dial == nullptr ? Dial::State::connects : one.dial->step();
    if (state == Dial::State::open) {
      opened.push_back(one.dial->take());
      return true;
    }
    if (state == Dial::State::failed) {
      one.why = one.dial->why();
      one.dial.reset();
      if (one.is_last_try) {
        failed_.emplace_back(one.peer, "has left before its data connection was open");
        return true;
      }
      one.next_try = Deadline::after_ms(kPauseMs);
    }
  } catch (const Error& error) {
    failed_.emplace_back(one.peer, text("cannot be trusted: ", error.message()));
    return true;
  }
  // A peer that does not answer may be stopped, and is not lost for that.
  const bool is_reached = one.dial != nullptr && one.dial->state() != Dial::State::connects;
  if (is_reached || one.why.empty() || !one.deadline.passed()) return false;
  failed_.emplace_back(
      one.peer, text("cannot be reached for data in ", contacts_->options.timeout_ms, " ms: ", one.why));
  return true;
}

void Connector::close() {
  door_.close();
  wanted_.clear();
}

}  // namespace gangway::network
