#include "gang/network/group.h"

namespace gangway::network {

Error Group::lost(const char* op, const std::string& words, int peer) const {
  Error error(Code::peer_lost,
              text(options.label, *op == '\0' ? "" : ".", op, ": ", rank_text(options, peer), " ", words));
  error.gang = options.label;
  error.op = op;
  error.rank = options.rank;
  error.peer = peer;
  return error;
}

Key key_of(const Note& note, int from) {
  const auto lane = static_cast<Lane>(note.lane);
  Key key;
  key.channel = static_cast<Channel>(note.channel);
  key.lane = lane == Lane::from_me ? Lane::to_me : lane == Lane::to_me ? Lane::from_me : Lane::collective;
  key.peer = key.lane == Lane::collective ? -1 : from;
  key.sequence = note.sequence;
  return key;
}

std::string text_of(const Note& note, const std::string& rank) {
  const auto reduce = static_cast<Reduce>(note.reduce);
  return text(name(static_cast<CollectiveOp>(note.op)), " #", note.sequence, " of ", rank, " (", note.count,
              " ", name(static_cast<DType>(note.dtype)), reduce == Reduce::none ? "" : ", ",
              reduce == Reduce::none ? "" : name(reduce), note.root < 0 ? "" : text(", root ", note.root),
              ")");
}

std::optional<Error> disagreement(const Group& group, const Transfer& own, int peer, const Note& other) {
  const Note& mine = own.note;
  const bool same_call = mine.op == other.op && mine.count == other.count && mine.dtype == other.dtype &&
                         mine.root == other.root && mine.reduce == other.reduce;
  if (same_call && own.has_peer(peer) && mine.counts == other.counts && other.sends == own.takes_from(peer) &&
      other.takes == own.sends_to(peer))
    return std::nullopt;
  const EngineOptions& o = group.options;
  Error error(
      Code::mismatch,
      text(o.label, ".", text_of(mine, rank_text(o, o.rank)), " meets ", text_of(other, rank_text(o, peer)),
           same_call ? ": their counts per rank differ" : ": ranks called different collectives"));
  error.gang = o.label;
  error.op = own.op_name;
  error.rank = o.rank;
  error.peer = peer;
  return error;
}

}  // namespace gangway::network
