// The endpoint of libfabric of one rank: reliable datagrams with tags. A message belongs to the wire of the
// rank that is its tag. Both ends of an operation are seen in the one completion queue, which progress()
// reads. All memory that the provider may touch belongs to the endpoint and lives longer than it.
//
// Thread rule: one thread at a time.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <memory>
#include <string>
#include <vector>

#include "gang/fabric_module.h"

namespace gangway::fabric {

class MessageWire;

// The memory of one message, and the operation that uses it.
struct Slot {
  fi_context2 context{};  // the provider's; the first member, because completions carry its address
  MessageWire* wire = nullptr;
  char* bytes = nullptr;
  void* descriptor = nullptr;  // of the registered memory
  size_t size = 0;             // of the message
  bool is_sent = false;        // sent, not received
};

constexpr size_t kSlotBytes = 64 << 10;

struct Close {
  template <typename Object>
  void operator()(Object* object) const {
    fi_close(&object->fid);
  }
};
template <typename Object>
using Owned = std::unique_ptr<Object, Close>;

class Endpoint final : public Fabric {
 public:
  Endpoint(const std::string& address, int peers);
  ~Endpoint() override;

  const std::string& provider() const override { return provider_; }
  const std::string& address() const override { return address_; }
  std::unique_ptr<Wire> connect(int own_rank, int peer_rank, const std::string& address) override;
  int descriptor() const override { return descriptor_; }
  int64_t may_wait(int64_t ms) override;
  void progress() override;
  void abandon() noexcept override { is_abandoned_ = true; }

  // For wires. Returns slots with memory for `bytes` bytes each.
  std::vector<Slot*> make_slots(int count, size_t bytes, MessageWire& wire);
  // Post an operation. Return whether it is posted: false asks for another try after progress(). Throw IO.
  bool post_send(Slot& slot, fi_addr_t to, uint64_t tag);
  bool post_receive(Slot& slot, uint64_t tag);
  // Detaches a wire. The provider may still use its slots, so these stay, and their completions are ignored.
  void forget(MessageWire& wire) noexcept;

 private:
  void find_provider(const std::string& address);
  void open_queue(int peers);

  // They end in the opposite order: the endpoint first, so that nothing uses the memory when it is freed.
  struct Objects {
    std::vector<std::unique_ptr<Slot>> slots;
    std::vector<std::unique_ptr<char[]>> memory;
    Owned<fid_fabric> fabric;
    Owned<fid_domain> domain;
    std::vector<Owned<fid_mr>> registrations;
    Owned<fid_av> addresses;
    Owned<fid_cq> queue;
    Owned<fid_ep> endpoint;
    Objects* next = nullptr;  // of those that are kept
  };

  std::unique_ptr<fi_info, void (*)(fi_info*)> info_{nullptr, fi_freeinfo};
  std::string provider_, address_;
  std::unique_ptr<Objects> all_ = std::make_unique<Objects>();
  bool is_abandoned_ = false;
  int descriptor_ = -1;
  std::vector<MessageWire*> wires_;
};

}  // namespace gangway::fabric
