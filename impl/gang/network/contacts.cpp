#include "gang/network/contacts.h"

#include "base/library_build.h"

namespace gangway::network {

Contacts::Contacts(const Meeting& meeting, const EngineOptions& options)
    : options(options), key(meeting.pair_key()), attempt(meeting.attempt()) {
  for (int r = 0; r < options.size; ++r) {
    const Place& place = meeting.places()[static_cast<size_t>(r)];
    Peer peer{place.process, meeting.name_of(r), std::nullopt};
    if (r > options.rank) {
      const std::string address = meeting.address_of(r);
      peer.place += " at " + host_and_port(address, place.port);
      peer.at = resolve(address, place.port, /*listening=*/false, meeting.deadline()).at(0);
    }
    peers.push_back(std::move(peer));
  }
}

std::string Contacts::terms(Purpose purpose, int lower, int higher) const {
  return text("network/", purpose == Purpose::control ? "control" : "data", "/", lower, "/", higher, "/",
              of(lower).process, "/", of(higher).process, "/", attempt, "/", library_build(), "/",
              options.size, "/", options.liveness_ms);
}

}  // namespace gangway::network
