// What a rank has to know of its peers to open connections to them, or to accept them: at the start, and
// later, when a data connection is first needed. Both ends of a connection prove that they know the gang's
// key (rendezvous/handshake.h). The proof covers the purpose of the connection, both ranks, both starts of
// their processes, the attempt of rank 0, the build of the library and the options; any difference is
// refused.
//
//   lower -> higher  purpose u8, hello                 57 bytes
//   higher -> lower  nonce, proof                      64 bytes
//   lower -> higher  proof                             32 bytes
//   higher -> lower  1: it is open                     1 byte
//
// The higher rank may give up a handshake that takes long, until it has sent the last byte. The lower rank
// waits for that byte, and tries again if the connection ends before. So a connection is open for both or for
// none.
//
// Thread rule: values.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gang/descriptor.h"
#include "gang/network/places.h"
#include "gang/rendezvous/handshake.h"
#include "gang/rendezvous/hmac.h"
#include "gang/rendezvous/resolve.h"

namespace gangway::network {

enum class Purpose : uint8_t { control = 1, data = 2 };

constexpr int64_t kHandshakeMs = 5'000;  // the longest time that the higher rank gives a handshake
constexpr char kIsOpen = 1;
constexpr size_t kGreetingBytes = 1 + kHelloBytes;

struct Contacts {
  struct Peer {
    uint64_t process = 0;
    std::string place;  // "rank 1 on node7 at 10.0.0.7:40123"; "rank 0 on node1" of a lower rank
    std::optional<SocketAddress> at;  // of a higher rank, to which this one opens connections
  };

  // INVALID_ARGUMENT: a higher rank has only a loopback address.
  Contacts(const Meeting& meeting, const EngineOptions& options);
  Contacts(const EngineOptions& options, const Secret& key, std::vector<Peer> peers)
      : options(options), key(key), peers(std::move(peers)) {}
  const Peer& of(int peer) const { return peers[static_cast<size_t>(peer)]; }
  // What both proofs of a connection cover besides the hello and the nonce.
  std::string terms(Purpose purpose, int lower, int higher) const;

  const EngineOptions options;
  const Secret key;
  const std::string attempt;
  std::vector<Peer> peers;
};

// A connection whose two ends have proved who they are.
struct Opened {
  int peer = 0;
  Purpose purpose = Purpose::control;
  Descriptor socket;
  Secret to_lower, to_higher;  // the keys of its frames
};

}  // namespace gangway::network
