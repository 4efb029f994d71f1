#include "gang/fabric/endpoint.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/kept_signals.h"
#include "gang/fabric/wire.h"

namespace gangway::fabric {
namespace {

constexpr int64_t kShortNapMs = 1;  // while the provider may need calls that no descriptor announces
constexpr size_t kOperations = 32;  // of each wire: slots that are sent or received at the same time

// `result`: of a function of libfabric, 0 or a negative number.
void check(int result, const char* what) {
  if (result != 0) fail(Code::io, "libfabric: ", what, ": ", fi_strerror(-result));
}

}  // namespace

Endpoint::Endpoint(const std::string& address, int peers) {
  find_provider(address);
  fid_fabric* fabric = nullptr;
  check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
  all_->fabric.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
  all_->domain.reset(domain);
  fi_av_attr table{};
  table.type = info_->domain_attr->av_type;
  fid_av* addresses = nullptr;
  check(fi_av_open(domain, &table, &addresses, nullptr), "fi_av_open");
  all_->addresses.reset(addresses);
  open_queue(peers);
  fid_ep* endpoint = nullptr;
  check(fi_endpoint(domain, info_.get(), &endpoint, nullptr), "fi_endpoint");
  all_->endpoint.reset(endpoint);
  check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
  check(fi_ep_bind(endpoint, &all_->queue->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  check(fi_enable(endpoint), "fi_enable");
  size_t bytes = 0;
  const int asked = fi_getname(&endpoint->fid, nullptr, &bytes);
  if (asked != -FI_ETOOSMALL) check(asked, "fi_getname");
  address_.resize(bytes);
  check(fi_getname(&endpoint->fid, address_.data(), &bytes), "fi_getname");
  address_.resize(bytes);
}

// The tcp provider of libfabric 1.17 may crash in fi_close() while a connection to a lost peer is half open,
// so such an endpoint is only kept.
Endpoint::~Endpoint() {
  static std::atomic<Objects*> kept = nullptr;
  if (!is_abandoned_) return;
  Objects* const mine = all_.release();
  mine->next = kept.exchange(mine);
}

void Endpoint::find_provider(const std::string& address) {
  const std::unique_ptr<fi_info, void (*)(fi_info*)> wish(fi_allocinfo(), fi_freeinfo);
  if (wish == nullptr) throw std::bad_alloc();
  wish->ep_attr->type = FI_EP_RDM;
  wish->caps = FI_TAGGED;
  wish->mode = FI_CONTEXT | FI_CONTEXT2;
  wish->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  wish->domain_attr->threading = FI_THREAD_DOMAIN;
  wish->domain_attr->resource_mgmt = FI_RM_ENABLED;
  wish->tx_attr->msg_order = wish->rx_attr->msg_order = FI_ORDER_SAS;  // a message does not overtake another
  fi_info* found = nullptr;
  const KeptSignals kept;  // it loads the providers
  const int result = fi_getinfo(FI_VERSION(1, 11), address.empty() ? nullptr : address.c_str(), nullptr,
                                address.empty() ? 0 : FI_SOURCE, wish.get(), &found);
  if (result != 0)
    fail(Code::not_supported, "GANGWAY_WIRE: libfabric has no provider with reliable tagged messages",
         address.empty() ? "" : " at ", address, ": ", fi_strerror(-result),
         "; fi_info lists providers, and FI_PROVIDER chooses one");
  info_.reset(found);
  provider_ = found->fabric_attr->prov_name;
}

// Not every provider has a descriptor to wait for.
void Endpoint::open_queue(int peers) {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_TAGGED;
  attributes.size = std::max<size_t>(1024, kOperations * static_cast<size_t>(std::max(peers, 1)));
  fid_cq* queue = nullptr;
  attributes.wait_obj = FI_WAIT_FD;
  if (fi_cq_open(all_->domain.get(), &attributes, &queue, nullptr) != 0) {
    attributes.wait_obj = FI_WAIT_NONE;
    check(fi_cq_open(all_->domain.get(), &attributes, &queue, nullptr), "fi_cq_open");
  }
  all_->queue.reset(queue);
  if (attributes.wait_obj == FI_WAIT_FD && fi_control(&queue->fid, FI_GETWAIT, &descriptor_) != 0)
    descriptor_ = -1;
}

std::unique_ptr<Wire> Endpoint::connect(int own_rank, int peer_rank, const std::string& address) {
  fi_addr_t to = FI_ADDR_UNSPEC;
  if (fi_av_insert(all_->addresses.get(), address.data(), 1, &to, 0, nullptr) != 1)
    fail(Code::io, "libfabric: the provider ", provider_, " does not take the address of rank ", peer_rank);
  auto wire = std::make_unique<MessageWire>(*this, to, static_cast<uint64_t>(own_rank),
                                            static_cast<uint64_t>(peer_rank));
  wires_.push_back(wire.get());
  return wire;
}

std::vector<Slot*> Endpoint::make_slots(int count, size_t bytes, MessageWire& wire) {
  all_->memory.push_back(std::make_unique<char[]>(static_cast<size_t>(count) * bytes));
  char* const memory = all_->memory.back().get();
  void* descriptor = nullptr;
  if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    fid_mr* registration = nullptr;
    check(fi_mr_reg(all_->domain.get(), memory, static_cast<size_t>(count) * bytes, FI_SEND | FI_RECV, 0,
                    all_->registrations.size() + 1, 0, &registration, nullptr),
          "fi_mr_reg");
    all_->registrations.emplace_back(registration);
    descriptor = fi_mr_desc(registration);
  }
  std::vector<Slot*> slots;
  for (int i = 0; i < count; ++i) {
    all_->slots.push_back(std::make_unique<Slot>());
    slots.push_back(all_->slots.back().get());
    slots.back()->wire = &wire;
    slots.back()->bytes = memory + static_cast<size_t>(i) * bytes;
    slots.back()->descriptor = descriptor;
  }
  return slots;
}

bool Endpoint::post_send(Slot& slot, fi_addr_t to, uint64_t tag) {
  slot.is_sent = true;
  const ssize_t result =
      fi_tsend(all_->endpoint.get(), slot.bytes, slot.size, slot.descriptor, to, tag, &slot.context);
  if (result == -FI_EAGAIN) return false;
  check(static_cast<int>(result), "fi_tsend");
  return true;
}

bool Endpoint::post_receive(Slot& slot, uint64_t tag) {
  slot.is_sent = false;
  const ssize_t result =
      fi_trecv(all_->endpoint.get(), slot.bytes, kSlotBytes, slot.descriptor, FI_ADDR_UNSPEC, tag,
               /*ignore=*/0, &slot.context);
  if (result == -FI_EAGAIN) return false;
  check(static_cast<int>(result), "fi_trecv");
  return true;
}

void Endpoint::forget(MessageWire& wire) noexcept {
  std::erase(wires_, &wire);
  for (const auto& slot : all_->slots)
    if (slot->wire == &wire) slot->wire = nullptr;
}

int64_t Endpoint::may_wait(int64_t ms) {
  fid* const queue = &all_->queue->fid;
  fid* waits[] = {queue};
  const bool is_ready = descriptor_ < 0 || fi_trywait(all_->fabric.get(), waits, 1) == FI_SUCCESS;
  const bool has_arrived =
      std::any_of(wires_.begin(), wires_.end(), [](const MessageWire* wire) { return wire->has_arrived(); });
  if (!is_ready || has_arrived) return 0;
  const bool all_idle =
      std::all_of(wires_.begin(), wires_.end(), [](const MessageWire* wire) { return wire->is_idle(); });
  return descriptor_ >= 0 && all_idle ? ms : std::min(ms, kShortNapMs);
}

void Endpoint::progress() {
  for (;;) {
    fi_cq_tagged_entry done[16];
    const ssize_t count = fi_cq_read(all_->queue.get(), done, std::size(done));
    if (count == -FI_EAGAIN) break;
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      if (fi_cq_readerr(all_->queue.get(), &error, 0) != 1) break;
      auto* const slot = static_cast<Slot*>(error.op_context);
      if (slot != nullptr && slot->wire != nullptr && error.err != FI_ECANCELED)
        slot->wire->failed(text(provider_, ": ", fi_strerror(error.err)));
      continue;
    }
    if (count < 0) fail(Code::io, "libfabric: fi_cq_read: ", fi_strerror(static_cast<int>(-count)));
    for (ssize_t i = 0; i < count; ++i) {
      auto* const slot = static_cast<Slot*>(done[i].op_context);
      if (slot == nullptr || slot->wire == nullptr) continue;
      if (slot->is_sent)
        slot->wire->left(*slot);
      else
        slot->wire->came(*slot, done[i].len);
    }
  }
  for (MessageWire* const wire : wires_) wire->push();
}

}  // namespace gangway::fabric
