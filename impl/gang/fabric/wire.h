// A stream of bytes to one peer as messages of libfabric.
//
//   message   taken u32: how many messages with bytes the sender has taken from this peer so far
//             number u32: how many messages with bytes it has sent before this one
//             bytes u32, then so many bytes; 0: it says `taken` alone
//
// A provider delivers a message when it is complete, so that a short message may overtake a longer one that
// was sent earlier. Therefore messages have numbers. At most kWindow messages with bytes are under way, so
// that a receive is posted for every message, and no provider has to buffer any.
//
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "gang/fabric/endpoint.h"

namespace gangway::fabric {

class MessageWire final : public Wire {
 public:
  MessageWire(Endpoint& endpoint, fi_addr_t to, uint64_t own_tag, uint64_t peer_tag);
  ~MessageWire() override;

  size_t send(const iovec* parts, int count) override;
  size_t receive(const iovec* parts, int count) override;
  bool has_arrived() const override { return arrived_[taken_ % kWindow].slot != nullptr; }
  bool has_room() const override { return sent_ - acknowledged_ < kWindow && !free_.empty(); }
  bool is_idle() const override { return sent_ == acknowledged_ && unposted_.empty(); }
  const std::string& failure() const override { return failure_; }

  // For the endpoint: what the completion queue says.
  void left(Slot& slot);
  void came(Slot& slot, size_t bytes);
  void failed(const std::string& why);
  void push();  // posts what could not be posted, and tells the peer what was taken

 private:
  static constexpr uint32_t kWindow = 8;

  struct Head {
    uint32_t taken = 0, number = 0, bytes = 0;
  };
  static_assert(sizeof(Head) == 12);

  struct Arrived {
    Slot* slot = nullptr;
    size_t at = 0, end = 0;
  };

  void post(Slot& slot, uint32_t number, size_t bytes);
  void take_again(Slot& slot);  // the slot receives another message

  Endpoint& endpoint_;
  const fi_addr_t to_;
  const uint64_t own_tag_, peer_tag_;
  std::vector<Slot*> free_;               // for messages with bytes
  std::vector<Slot*> free_notes_;         // for messages without
  std::deque<Slot*> unposted_;            // the provider had no room for them
  std::deque<Slot*> unreceived_;          // the same of those that receive
  std::array<Arrived, kWindow> arrived_;  // by number
  uint32_t sent_ = 0, acknowledged_ = 0;  // messages with bytes; the numbers may wrap
  uint32_t taken_ = 0, told_ = 0;
  std::string failure_;
};

}  // namespace gangway::fabric
