#include "gang/network/mesh.h"

#include <errno.h>
#include <poll.h>

#include <memory>
#include <optional>

#include "base/interrupt.h"
#include "gang/rendezvous/store_common.h"

namespace gangway::network {
namespace {

class Mesh {
 public:
  Mesh(Meeting& meeting, const EngineOptions& options)
      : meeting_(meeting),
        options_(options),
        contacts_(std::make_shared<Contacts>(meeting, options)),
        door_(contacts_, meeting.take_listener()),
        control_(static_cast<size_t>(options.size)),
        data_(static_cast<size_t>(options.size)) {}

  Connections connect() {
    for (int r = options_.rank + 1; r < options_.size; ++r) open(r);
    while (!has_all()) accept_for(kNapMs);
    std::list<Link> links;
    for (int r = 0; r < options_.size; ++r) {
      if (r == options_.rank) continue;
      Opened& opened = *control_[static_cast<size_t>(r)];
      const bool is_lower = options_.rank < r;
      watch_host(opened.socket.get(), options_.liveness_ms);
      links.emplace_back(r, std::move(opened.socket), is_lower ? opened.to_higher : opened.to_lower,
                         is_lower ? opened.to_lower : opened.to_higher);
      links.back().data = std::move(data_[static_cast<size_t>(r)]);
    }
    return {std::move(links), Connector(contacts_, std::move(door_))};
  }

 private:
  bool has_all() const {
    for (int r = 0; r < options_.rank; ++r)
      if (!control_[static_cast<size_t>(r)]) return false;
    return true;
  }

  void open(int peer) {
    StoreBackoff backoff(meeting_.deadline());
    std::string why;
    do {
      accept_for(0);  // lower ranks may be waiting for this one
      if (try_to_open(peer, why)) return;
      look();
    } while (backoff.pause());
    fail(Code::timeout, "gang.create: rank ", options_.rank, " could not connect to ",
         contacts_->of(peer).place, " in ", options_.timeout_ms, " ms: ", why);
  }

  static Dial::State step(Dial& dial) {
    try {
      return dial.step();
    } catch (const Error& error) {
      fail(error.code(), "gang.create: ", error.message());
    }
  }

  // Ranks that wait for this one are served meanwhile, as the peer may wait for them.
  bool try_to_open(int peer, std::string& why) {
    Dial dial(*contacts_, peer, Purpose::control, meeting_.deadline());
    for (;;) {
      const Dial::State state = step(dial);
      if (state == Dial::State::open) {
        take(dial.take());
        return true;
      }
      if (state == Dial::State::failed) break;
      accept_for(kNapMs, dial.waits_for());
    }
    why = dial.why();
    if (dial.is_refused()) lost(peer, "refuses connections: it has died, or a firewall is between the hosts");
    return false;
  }

  // Serves those who connect, until something has come or the time is over. `other` may wake it, too.
  void accept_for(int64_t ms, pollfd other = {-1, 0, 0}) {
    std::vector<pollfd> fds{other};
    door_.add_polls(fds);
    if (poll(fds.data(), fds.size(), static_cast<int>(ms)) < 0 && errno != EINTR)
      fail_system(Code::io, "gang.create: poll failed", errno);
    for (Opened& one : door_.serve()) take(std::move(one));
    poll_interrupt();
    if (ms != 0) look();
  }

  // A lower rank that has met all others may already open its data connection.
  void take(Opened opened) {
    const auto peer = static_cast<size_t>(opened.peer);
    if (opened.purpose == Purpose::data)
      data_[peer] = std::move(opened.socket);
    else
      control_[peer] = std::move(opened);
  }

  // Looks now and then whether the others go on.
  void look() {
    if (!next_look_.passed()) return;
    next_look_ = Deadline::after_ms(kLookMs);
    if (meeting_.deadline().passed()) {
      std::string missing;
      for (int r = 0; r < options_.rank; ++r)
        if (!control_[static_cast<size_t>(r)])
          missing += text(missing.empty() ? "" : ", ", meeting_.name_of(r));
      fail(Code::timeout, "gang.create: rank ", options_.rank, " waited ", options_.timeout_ms,
           " ms for a connection from ", missing.empty() ? "its peers" : missing,
           "; do they reach its address, and is no firewall between them?");
    }
    meeting_.check();
  }

  [[noreturn]] void lost(int peer, const char* why) const {
    Error error(Code::peer_lost, text("gang.create: ", contacts_->of(peer).place, " ", why));
    error.peer = peer;
    error.rank = options_.rank;
    throw std::move(error);
  }

  Meeting& meeting_;
  const EngineOptions& options_;
  const std::shared_ptr<const Contacts> contacts_;
  Door door_;
  std::vector<std::optional<Opened>> control_;  // by rank
  std::vector<Descriptor> data_;
  Deadline next_look_ = Deadline::after_ms(kLookMs);
};

}  // namespace

Connections connect_all(Meeting& meeting, const EngineOptions& options) {
  return Mesh(meeting, options).connect();
}

}  // namespace gangway::network
