// The calls of a network: notes, and the pieces that they let go.
#include <algorithm>
#include <cstring>

#include "gang/network/network.h"

namespace gangway::network {
namespace {

constexpr int kMostUnanswered = 8;           // notes with a payload per channel and peer
constexpr size_t kSentByCaller = 256 << 10;  // the most bytes that a caller's thread sends itself

}  // namespace

void Network::begin(const std::shared_ptr<Group>& group, const TransferPtr& transfer) {
  const Lock lock(mutex_);
  if (group->error) throw *group->error;
  start(group, transfer);
}

bool Network::must_wait(const Group& group, const Key& key, const Touched& memory) {
  const Lock lock(mutex_);
  return is_held(group, key, memory);
}

void Network::hold(const std::shared_ptr<Group>& group, Group::Held call) {
  const Lock lock(mutex_);
  if (group->error) throw *group->error;
  group->held.push_back(std::move(call));
  start_held(group);  // the calls before may have ended meanwhile
  if (group->error) throw *group->error;
}

// Returns whether an earlier collective of the channel has to end before this one.
bool Network::is_held(const Group& group, const Key& key, const Touched& memory) {
  const auto comes_first = [&](const Key& other, const Touched& touched) {
    return other.channel == key.channel && other.sequence < key.sequence && is_order_seen(touched, memory);
  };
  for (auto it = group.active.lower_bound({key.channel, Lane::collective, -1, 0});
       it != group.active.end() && it->first < key; ++it)
    if (comes_first(it->first, it->second->memory)) return true;
  return std::any_of(group.held.begin(), group.held.end(),
                     [&](const Group::Held& other) { return comes_first(other.key, other.memory); });
}

// Starts the collectives that nothing holds back any more. One that ends at once may free the next, which is
// the loop's to start and not the recursion's, since a chain may be long.
void Network::start_held(const std::shared_ptr<Group>& group) {
  if (std::exchange(group->is_starting_held, true)) return;
  for (;;) {
    const auto free = std::find_if(group->held.begin(), group->held.end(), [&](const Group::Held& one) {
      return !is_held(*group, one.key, one.memory);
    });
    if (group->error || free == group->held.end()) break;
    const Group::Held next = std::move(*free);
    group->held.erase(free);
    try {
      start(group, next.plan());
    } catch (const std::bad_alloc&) {
      stop(*group, Error(Code::out_of_memory, "no memory"), /*tells=*/true);
    } catch (const Error&) {  // the gang is broken, and says so to all who wait
    }
  }
  group->is_starting_held = false;
}

void Network::start(const std::shared_ptr<Group>& group, const TransferPtr& transfer) {
  for (const int peer : transfer->peers)
    if (group->gone[static_cast<size_t>(peer)] && group->early.count({transfer->key, peer}) == 0) {
      stop(*group, group->lost(transfer->op_name, left_words(*group, peer), peer), /*tells=*/true);
      throw *group->error;
    }
  group->active[transfer->key] = transfer;
  for (const int peer : transfer->peers)
    if (!group->error) send_note(group, transfer, peer);
  for (;;) {
    if (group->error) throw *group->error;
    const auto early = group->early.lower_bound({transfer->key, 0});
    if (early == group->early.end() || early->first.first != transfer->key) break;
    const int from = early->first.second;
    const Group::Early found = std::move(early->second);
    group->early.erase(early);
    match(group, transfer, from, found.note, found.payload);
  }
  if (group->error) throw *group->error;
  settle(group, transfer);  // a call without peers or pieces is over at once
}

void Network::send_note(const std::shared_ptr<Group>& group, const TransferPtr& t, int peer) {
  Note note = t->note;
  note.sends = t->sends_to(peer);
  note.takes = t->takes_from(peer);
  std::string payload;
  int& unanswered = group->unanswered[{peer, t->key.channel}];
  for (Outgoing& piece : t->out) {
    if (piece.to != peer || piece.part != 0 || piece.bytes > kInlineBytes || piece.ready != piece.bytes ||
        unanswered >= kMostUnanswered)
      continue;
    payload.assign(piece.from, piece.bytes);
    piece.sent = piece.bytes;
    piece.is_queued = true;
    --t->missing_out;
    ++unanswered;
    t->owes_room[static_cast<size_t>(peer)] = true;
    break;
  }
  note.inline_bytes = static_cast<uint32_t>(payload.size());
  if (peer == group->options.rank) return take_note(group, peer, note, payload);
  Link* const link = link_to(*group, peer);
  if (link == nullptr || link->is_lost || link->has_left) return;
  post(*link, {ControlKind::note, group->id,
               std::string(reinterpret_cast<const char*>(&note), sizeof note) + payload});
}

void Network::on_note(Link& link, const ControlFrame& frame) {
  Note note;
  if (frame.body.size() < sizeof note) fail(Code::corrupt, "a note of ", frame.body.size(), " bytes");
  std::memcpy(&note, frame.body.data(), sizeof note);
  if (note.channel >= kChannels || note.lane > static_cast<uint8_t>(Lane::from_me) ||
      frame.body.size() != sizeof note + note.inline_bytes)
    fail(Code::corrupt, "a note that no rank makes");
  const std::shared_ptr<Group>& group = groups_.at(frame.gang);
  const int from = group->rank_of(link.rank);
  if (from < 0) fail(Code::corrupt, "a note from a rank that is not of the gang");
  if (!group->error) take_note(group, from, note, frame.body.substr(sizeof note));
}

void Network::take_note(const std::shared_ptr<Group>& group, int from, const Note& note,
                        const std::string& payload) {
  const Key key = key_of(note, from);
  const auto active = group->active.find(key);
  const bool waits = active != group->active.end() && !active->second->noted[static_cast<size_t>(from)];
  if (waits) return match(group, TransferPtr(active->second), from, note, payload);
  group->early[{key, from}] = {note, payload};
  changed();  // a probe may wait for it
}

void Network::match(const std::shared_ptr<Group>& group, const TransferPtr& t, int peer, const Note& note,
                    const std::string& payload) {
  if (const auto error = disagreement(*group, *t, peer, note)) return stop(*group, *error, /*tells=*/true);
  t->noted[static_cast<size_t>(peer)] = true;
  --t->missing_notes;
  if (t->owes_room[static_cast<size_t>(peer)]) --group->unanswered[{peer, t->key.channel}];
  if (!payload.empty()) {
    size_t at = 0;
    while (at < t->in.size() && !(t->in[at].from == peer && t->in[at].part == 0)) ++at;
    if (at == t->in.size() || t->in[at].bytes != payload.size())
      return stop(*group, Error(Code::internal, "network: a payload that no piece wants"), /*tells=*/true);
    Incoming& piece = t->in[at];
    if (piece.fold != nullptr)
      piece.fold->take(piece.input, payload.data(), payload.size());
    else
      std::memcpy(piece.to, payload.data(), payload.size());
    piece.have = payload.size();
    t->advance(at);
  }
  queue_ready(group, t);
  settle(group, t);
}

// Queues the pieces of which memory holds bytes to send and whose receivers have sent their notes.
void Network::queue_ready(const std::shared_ptr<Group>& group, const TransferPtr& t) {
  std::vector<Link*> links;
  for (size_t i = 0; i < t->out.size(); ++i) {
    Outgoing& piece = t->out[i];
    if (piece.sent == piece.ready || piece.is_queued || !t->noted[static_cast<size_t>(piece.to)]) continue;
    if (piece.to == group->options.rank) {
      deliver_to_self(group, t, i);
      continue;
    }
    Link* const link = link_to(*group, piece.to);
    if (link == nullptr || link->is_lost) continue;
    if (!open_memory(*group, *t, *link)) return;
    dial(*link);
    const bool was_idle = !link->has_data() && link->can_send();
    link->queue(group, t, i);
    if (was_idle) links.push_back(link);
  }
  bool waits = false;
  for (Link* const link : links) {
    try {
      link->send_data(kSentByCaller, [&](const std::shared_ptr<Group>& done_group, const TransferPtr& done) {
        --done->missing_out;
        if (done != t) settle(done_group, done);
      });
    } catch (const LinkEnd& end) {
      lose(*link, end.why);
    }
    waits = waits || link->has_data();
  }
  if (waits) wake();
}

// Returns false, and has broken the gang, if this host has no memory for what goes to a peer on it.
bool Network::open_memory(Group& group, const Transfer& t, Link& link) {
  try {
    if (link.memory != nullptr) link.memory->open();
    return true;
  } catch (const Error& error) {
    Error own(error.code(), text(group.options.label, ".", t.op_name, ": ", error.message()));
    own.gang = group.options.label;
    own.op = t.op_name;
    own.rank = group.options.rank;
    stop(group, own, /*tells=*/true);
    return false;
  }
}

// A long message of a rank to itself.
void Network::deliver_to_self(const std::shared_ptr<Group>& group, const TransferPtr& t, size_t piece) {
  Outgoing& from = t->out[piece];
  Key key = t->key;
  key.lane = Lane::to_me;
  const auto other = group->active.find(key);
  if (other == group->active.end()) return;  // the receive comes later, and finds this piece by its note
  const TransferPtr receive = other->second;
  if (receive->in.size() != 1 || receive->in[0].bytes != from.bytes) return;
  from.is_queued = true;
  std::memcpy(receive->in[0].to, from.from, from.bytes);
  receive->in[0].have = from.bytes;
  from.sent = from.bytes;
  --t->missing_out;
  chunk_came(group, receive, 0);
}

void Network::chunk_came(const std::shared_ptr<Group>& group, const TransferPtr& t, size_t piece) {
  if (t->advance(piece)) queue_ready(group, t);
  settle(group, t);
}

// Ends a call, or hands its arithmetic to the gang's threads, if what has come or left allows that.
void Network::settle(const std::shared_ptr<Group>& group, const TransferPtr& t) {
  if (t->is_computing || t->ended == nullptr) return;
  if (t->wants_last()) {
    t->is_computing = true;
    group->to_compute.push_back(t);
    return changed();
  }
  if (!t->is_done()) return;
  const TransferPtr kept = t;
  group->active.erase(kept->key);
  std::exchange(kept->ended, nullptr)();
  if (!group->held.empty()) start_held(group);
  changed();
}

TransferPtr Network::next_to_compute(Group& group) {
  const Lock lock(mutex_);
  if (group.to_compute.empty()) return nullptr;
  TransferPtr next = std::move(group.to_compute.front());
  group.to_compute.pop_front();
  return next;
}

void Network::computed(const std::shared_ptr<Group>& group, const TransferPtr& t) {
  const Lock lock(mutex_);
  if (group->error) return;
  t->is_computing = false;
  settle(group, t);
}

PieceOfCall Network::find(const Link& link, const ChunkHead& head) {
  const auto found = groups_.find(head.gang);
  if (found == groups_.end() || found->second->error) return {};
  const std::shared_ptr<Group>& group = found->second;
  const int from = group->rank_of(link.rank);
  Note note;
  note.sequence = head.sequence;
  note.channel = head.channel;
  note.lane = head.lane;
  const auto active = group->active.find(key_of(note, from));
  if (active == group->active.end()) return {};
  const TransferPtr& t = active->second;
  for (size_t i = 0; i < t->in.size(); ++i)
    if (t->in[i].from == from && t->in[i].part == head.part && t->in[i].have < t->in[i].bytes)
      return {group, t, i};
  return {};
}

std::optional<Note> Network::waiting_note(const Group& group, const Key& key) {
  const Lock lock(mutex_);
  if (group.error) throw *group.error;
  const auto early = group.early.find({key, key.peer});
  if (early == group.early.end()) return std::nullopt;
  return early->second.note;
}

Awaited Network::awaited(const Group& group, const Key& key) {
  const Lock lock(mutex_);
  auto found = group.active.find(key);
  const bool waits_for_memory = std::any_of(group.held.begin(), group.held.end(),
                                            [&](const Group::Held& one) { return one.key == key; });
  if (waits_for_memory) found = group.active.lower_bound({key.channel, Lane::collective, -1, 0});
  if (found == group.active.end()) return {"run: it did not end"};
  const Transfer& t = *found->second;
  std::string late, slow;
  const auto add = [&](std::string& to, int peer) {
    const Link* const link = link_to(group, peer);
    const std::string why = link == nullptr ? "" : connector_.why_not(link->rank);
    to += text(to.empty() ? "" : ", ", rank_text(group.options, peer),
               why.empty() ? "" : text(" (not reached for data: ", why, ")"));
  };
  for (const int peer : t.peers) {
    if (!t.noted[static_cast<size_t>(peer)]) {
      add(late, peer);
      continue;
    }
    const bool owes = std::any_of(t.in.begin(), t.in.end(),
                                  [&](const Incoming& i) { return i.from == peer && i.have != i.bytes; });
    const bool waits = std::any_of(t.out.begin(), t.out.end(),
                                   [&](const Outgoing& o) { return o.to == peer && o.sent != o.bytes; });
    if (owes || waits) add(slow, peer);
  }
  const bool knows_all =
      found->first.lane != Lane::collective || static_cast<int>(t.peers.size()) + 1 == group.size();
  return {text(t.op_name, " #", t.note.sequence, ": ", late, late.empty() ? "" : " did not come",
               late.empty() || slow.empty() ? "" : ", ", slow, slow.empty() ? "" : " did not finish"),
          /*is_active=*/true, /*is_hearsay=*/late.empty() && !knows_all};
}

}  // namespace gangway::network
