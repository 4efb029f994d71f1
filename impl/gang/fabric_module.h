// The table that the loadable module for libfabric gives the core, which itself does not link libfabric. The
// module moves the data between hosts over what libfabric has a provider for (InfiniBand, EFA, TCP); the core
// opens it only where GANGWAY_WIRE asks for it. Failures of hosts and processes are never its matter: the
// control connections see them. Core and module know each other's objects only by their abstract classes. A
// module has its own copies of the core's functions that it uses, so nothing in it may keep state for the
// core.
//
// Thread rule: one thread at a time, as for everything of a network (gang/network/network.h).
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gangway {

// The data connection to one peer: a stream of bytes in each direction. It copies what it sends and receives,
// so the caller's memory is free when a call returns.
class Wire {
 public:
  virtual ~Wire() = default;
  // Takes bytes from the beginning of the parts and returns their number; 0: not now.
  virtual size_t send(const iovec* parts, int count) = 0;
  // Fills the parts from their beginning and returns the number of bytes; 0: nothing has come.
  virtual size_t receive(const iovec* parts, int count) = 0;
  virtual bool has_arrived() const = 0;  // receive() has something
  virtual bool has_room() const = 0;     // send() takes something
  virtual bool is_idle() const = 0;      // the peer has all that was sent
  // Why no more bytes move, or "".
  virtual const std::string& failure() const = 0;
};

// What a rank's wires have in common: its endpoint.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual const std::string& provider() const = 0;  // such as "verbs;ofi_rxm"
  virtual const std::string& address() const = 0;   // bytes, for connect() of the peers
  // Makes the wire to a peer. Throws IO. The fabric outlives its wires.
  virtual std::unique_ptr<Wire> connect(int own_rank, int peer_rank, const std::string& address) = 0;
  // A file descriptor that becomes readable when progress() has something to do; -1: there is none.
  virtual int descriptor() const = 0;
  // Returns how long a thread may wait for the descriptor now, at most `ms`.
  virtual int64_t may_wait(int64_t ms) = 0;
  // Moves what can move.
  virtual void progress() = 0;
  // A peer is lost. From now on the fabric stays until the process ends, also when this object is destroyed.
  virtual void abandon() noexcept = 0;
};

struct FabricModule {
  // The first member, so that it can be read in a module of any build; it must equal the core's.
  const char* build_id;
  // Opens an endpoint at this address of the host, a number; "" lets libfabric choose. `peers`: the most
  // wires that it will have. NOT_SUPPORTED: no provider can do it; the text says how to see them.
  std::unique_ptr<Fabric> (*open)(const std::string& address, int peers);
  // The version of libfabric, for gw-info.
  std::string (*describe)();
};

}  // namespace gangway

// The table. Its type is void, because base/loadable.h calls this function of any module.
extern "C" const void* gangway_fabric_module();
