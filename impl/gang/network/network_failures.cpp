// How a network ends gangs: peers that die, leave, or break a gang.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "gang/network/network.h"

namespace gangway::network {
namespace {

constexpr size_t kMostText = 4 << 10;  // of an error that goes to the peers

// Before the text of an error that goes to the peers.
struct BrokenHead {
  int32_t code;
  int32_t peer;  // the rank at fault: a lost rank, or else the rank that tells; -1: the text says who is late
};

}  // namespace

Link* Network::link_to(const Group& group, int rank) const {
  return by_rank_[static_cast<size_t>(group.members[static_cast<size_t>(rank)])];
}

void Network::post(Link& link, const ControlFrame& frame) noexcept {
  if (link.is_lost || !link.control) return;
  try {
    link.post(frame);
    if (!link.control_out.empty()) wake();
  } catch (const LinkEnd& end) {
    // What the peer said before it went is still to be read, so its end is found by the thread.
    link.control_out.clear();
    shutdown(link.control.get(), SHUT_WR);
    wake();
  } catch (const std::exception& error) {
    lose(link, "cannot be told: no memory", /*is_own=*/true);
  }
}

void Network::add(const std::shared_ptr<Group>& group) {
  const Lock lock(mutex_);
  groups_[group->id] = group;
  for (size_t r = 0; r < group->members.size(); ++r) {
    const Link* const link = by_rank_[static_cast<size_t>(group->members[r])];
    if (link == nullptr) continue;
    if (link->is_lost && !link->has_left)
      stop(*group, group->lost("", "has died", static_cast<int>(r)), true);
    group->gone[r] = link->is_lost || link->has_left;
  }
  const auto strays = strays_.find(group->id);
  if (strays == strays_.end()) return;
  const auto frames = std::move(strays->second);
  strays_.erase(strays);
  for (const auto& [rank, frame] : frames) on_frame(*by_rank_[static_cast<size_t>(rank)], frame);
}

void Network::remove(Group& group) noexcept {
  if (getpid() != process_) return;
  const Lock lock(mutex_);
  const auto found = groups_.find(group.id);
  if (found == groups_.end()) return;
  const std::shared_ptr<Group> kept = found->second;
  groups_.erase(found);
  stop(group, Error(Code::gang, "the gang was released"), /*tells=*/false);
  try {
    closed_.insert(group.id);
  } catch (const std::bad_alloc&) {  // later frames of this gang are kept as strays
  }
  for (int r = 0; r < group.size(); ++r)
    if (Link* const link = link_to(group, r); link != nullptr && !link->has_left)
      post(*link, {ControlKind::closed, group.id, ""});
}

void Network::on_frame(Link& link, const ControlFrame& frame) {
  if (frame.kind == ControlKind::beat) return;
  if (frame.kind == ControlKind::ended) {
    link.has_ended = true;
    return changed();
  }
  if (frame.kind == ControlKind::dial) return dial(link);
  if (frame.kind == ControlKind::goodbye) {
    link.has_left = true;
    const auto groups = groups_;
    for (const auto& [id, group] : groups)
      if (const int rank = group->rank_of(link.rank); rank >= 0) member_gone(group, rank);
    return;
  }
  const auto found = groups_.find(frame.gang);
  if (found == groups_.end()) {
    if (closed_.count(frame.gang) == 0) strays_[frame.gang].emplace_back(link.rank, frame);
    return;
  }
  if (frame.kind == ControlKind::note) return on_note(link, frame);
  const std::shared_ptr<Group> group = found->second;
  const int from = group->rank_of(link.rank);
  if (from < 0) fail(Code::corrupt, "a frame from a rank that is not of the gang");
  if (frame.kind == ControlKind::broken) return on_broken(*group, from, frame.body);
  member_gone(group, from);
}

void Network::on_broken(Group& group, int from, const std::string& body) {
  BrokenHead head{};
  if (body.size() < sizeof head) fail(Code::corrupt, "an error without a code");
  std::memcpy(&head, body.data(), sizeof head);
  if (head.code <= 0 || head.code > static_cast<int32_t>(Code::busy))
    head.code = static_cast<int32_t>(Code::gang);
  const bool names_none = head.code == static_cast<int32_t>(Code::timeout);  // the text says who is late
  if (head.peer < 0 || head.peer >= group.size()) head.peer = names_none ? -1 : from;
  if (group.error) return;
  const std::string said = body.substr(sizeof head);
  const std::string& label = group.options.label;
  const bool names_gang = said.starts_with(label + ".") || said.starts_with(label + ":");
  const bool is_this_rank = head.peer == group.options.rank;  // the others have lost it
  Error error(static_cast<Code>(head.code),
              is_this_rank ? text(label, ": ", rank_text(group.options, from), " has lost this rank: ", said)
              : names_gang ? said
                           : text(label, ": ", said));
  error.gang = label;
  error.rank = group.options.rank;
  error.peer = is_this_rank ? from : head.peer;
  stop(group, error, /*tells=*/false);
  tell(group, head.code, head.peer, said, from);
}

// A member has released the gang, or its process has left. Calls that it has begun may still end.
void Network::member_gone(const std::shared_ptr<Group>& group, int rank) {
  if (group->gone[static_cast<size_t>(rank)]) return;
  group->gone[static_cast<size_t>(rank)] = true;
  for (const auto& [key, t] : group->active) {
    const bool owes = std::find(t->peers.begin(), t->peers.end(), rank) != t->peers.end() &&
                      !t->noted[static_cast<size_t>(rank)];
    if (owes) return stop(*group, group->lost(t->op_name, left_words(*group, rank), rank), /*tells=*/true);
  }
}

// Returns the words for a rank that has left a gang. If another gang of that rank is broken, they say why,
// because this may be the reason for which the rank has left.
std::string Network::left_words(const Group& group, int rank) const {
  const int member = group.members[static_cast<size_t>(rank)];
  for (const auto& [id, other] : groups_)
    if (other->error && other.get() != &group && other->rank_of(member) >= 0)
      return text("has left. Before: ", other->error->message());
  return "has left";
}

// The connections to a peer have ended. A rank that ends because another one died says so before, so this
// rank hears the peer's last words first. For the same reason it tells the others, whose connections to the
// dead rank may end later than its own.
void Network::lose(Link& link, const std::string& why, bool is_own) noexcept {
  if (link.is_lost) return;
  link.is_lost = true;
  try {
    hear(link);
  } catch (const LinkEnd&) {         // as expected
  } catch (const std::exception&) {  // no memory, or a frame that no peer makes: `why` stays the reason
  }
  link.control_out.clear();
  link.control.reset();
  link.data.reset();
  connector_.forget(link.rank);
  if (link.wire != nullptr) fabric_->abandon();
  link.wire.reset();
  const auto groups = groups_;
  for (const auto& [id, group] : groups) {
    const int rank = group->rank_of(link.rank);
    if (rank < 0) continue;
    const char* op = group->active.empty() ? "" : group->active.begin()->second->op_name;
    bool owes = false;  // a peer that has left owes no bytes, or it died on its way out
    for (const auto& [key, t] : group->active) {
      const bool waits =
          std::any_of(t->in.begin(), t->in.end(),
                      [&](const Incoming& i) { return i.from == rank && i.have != i.bytes; }) ||
          std::any_of(t->out.begin(), t->out.end(),
                      [&](const Outgoing& o) { return o.to == rank && o.sent != o.bytes; });
      if (waits) op = t->op_name;
      owes = owes || waits;
    }
    const bool left = link.has_left || group->gone[static_cast<size_t>(rank)];
    group->gone[static_cast<size_t>(rank)] = true;
    if (!left || owes) stop(*group, group->lost(op, why, rank), /*tells=*/!is_own);
  }
  changed();
}

// Breaks a gang and drops its calls: from here on nothing reads or writes their memory.
void Network::stop(Group& group, const Error& error, bool tells) noexcept {
  if (group.error) return;
  keep_first(group.error, error);
  std::map<Key, TransferPtr> active;
  active.swap(group.active);
  for (const auto& [key, t] : active) {
    t->ended = nullptr;
    for (Link& link : links_) link.forget(*t);
  }
  group.held.clear();
  group.early.clear();
  group.to_compute.clear();
  changed();
  if (!tells) return;
  try {
    const bool is_of_peer = error.code() == Code::peer_lost && error.peer >= 0;
    const bool is_of_none = error.code() == Code::timeout;
    const std::string words =
        error.code() == Code::aborted
            ? text("aborted by ", rank_text(group.options, group.options.rank), ": ", error.message())
            : error.message();
    tell(group, static_cast<int32_t>(error.code()),
         is_of_peer   ? error.peer
         : is_of_none ? -1
                      : group.options.rank,
         words, group.options.rank);
  } catch (const std::bad_alloc&) {
    // Ignored: a peer that does not get the text fails at its own deadline.
  }
}

// Tells all but one rank why the gang is broken. A rank that was told tells it, too: it may end now, and
// those that see its end shall know the reason before.
void Network::tell(Group& group, int32_t code, int peer, const std::string& words, int but) noexcept {
  try {
    const BrokenHead head{code, peer};
    const std::string body =
        std::string(reinterpret_cast<const char*>(&head), sizeof head) + words.substr(0, kMostText);
    for (int r = 0; r < group.size(); ++r)
      if (Link* const link = link_to(group, r); link != nullptr && !link->has_left && r != but)
        post(*link, {ControlKind::broken, group.id, body});
  } catch (const std::bad_alloc&) {  // as in stop()
  }
}

void Network::break_group(Group& group, const Error& error) noexcept {
  if (getpid() != process_) return;
  const Lock lock(mutex_);
  stop(group, error, /*tells=*/true);
}

bool Network::is_gone(const Group& group, int rank) {
  const Lock lock(mutex_);
  const Link* const link = link_to(group, rank);
  return link != nullptr && (link->is_lost || link->has_left);
}

std::optional<Error> Network::error_of(const Group& group) {
  const Lock lock(mutex_);
  return group.error;
}

}  // namespace gangway::network
