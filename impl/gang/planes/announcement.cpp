#include "gang/planes/announcement.h"

#include <algorithm>

namespace gangway {
namespace {

uint64_t mix(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0xff51afd7ed558ccdull;
  return h ^ h >> 32;
}

CallNote described(const Collective& c) {
  CallNote note;
  note.count = c.counts == nullptr ? c.count : 0;
  note.dtype = static_cast<uint32_t>(c.dtype);
  note.root = facts(c.op).has_root ? c.peer : -1;
  note.op = c.op;
  note.reduce = c.reduce;
  note.records = 1;
  return note;
}

uint64_t hash_of(const CallNote& n) {
  return mix(mix(mix(0, static_cast<uint64_t>(n.op) | static_cast<uint64_t>(n.reduce) << 8 |
                            uint64_t{n.dtype} << 32),
                 static_cast<uint64_t>(static_cast<int64_t>(n.root))),
             n.count);
}

Collective bytes(CollectiveOp op, const void* in, void* out, size_t count, int peer = -1) {
  Collective c;
  c.op = op;
  c.in = in;
  c.out = out;
  c.count = count;
  c.dtype = DType::u8;
  c.peer = peer;
  return c;
}

std::string side(const EngineOptions& gang, const CallNote& n, int rank) {
  std::string words = text(name(n.op), " #", n.sequence, " of ", rank_text(gang, rank));
  if (n.op != CollectiveOp::barrier)
    words += text(" (", n.count, " ", name(static_cast<DType>(n.dtype)),
                  n.reduce == Reduce::none ? "" : text(", ", name(n.reduce)),
                  n.root < 0 ? "" : text(", root ", n.root),
                  n.records > 1 ? text(", first of ", n.records) : "", ")");
  return words;
}

[[noreturn]] void refuse(const EngineOptions& gang, const CallNote& mine, int rank, const CallNote& other,
                         int peer, const char* why) {
  Error error(Code::mismatch,
              text(gang.label, ".", side(gang, mine, rank), " meets ", side(gang, other, peer), ": ", why));
  error.gang = gang.label;
  error.op = name(mine.op);
  error.rank = rank;
  error.peer = peer;
  throw std::move(error);
}

bool equal_calls(const CallNote& a, const CallNote& b) {
  return a.op == b.op && a.reduce == b.reduce && a.dtype == b.dtype && a.count == b.count &&
         a.root == b.root && a.records == b.records;
}

}  // namespace

CallNote CallCounter::note(std::span<const Collective> span, int size) {
  CallNote note;
  for (const Collective& c : span) {
    if (is_pair(c)) continue;
    const CallNote one = described(c);
    if (note.records == 0)
      note = one;
    else
      ++note.records;
    history_ = mix(history_, hash_of(one));
    if (c.counts != nullptr && c.op != CollectiveOp::all_to_all)
      for (int r = 0; r < size; ++r) history_ = mix(history_, c.counts[r]);
  }
  if (note.records == 0) return note;
  note.sequence = sequence_++;
  note.hash = history_;
  return note;
}

CallNote CallCounter::pair_note(const Collective& c) {
  CallNote note = described(c);
  note.sequence = pairs_[{c.peer, c.op == CollectiveOp::send}]++;
  note.hash = mix(mix(0, note.count), note.dtype);
  return note;
}

Announcement::Announcement(CallCounter& counter, std::span<const Collective> span, int rank, int size)
    : rank_(rank), size_(size), mine_(counter.note(span, size)) {
  pairs_.reserve(span.size());
  if (mine_.records != 0) {
    others_.resize(static_cast<size_t>(size));
    records_.push_back(bytes(CollectiveOp::all_gather, &mine_, others_.data(), sizeof mine_));
  }
  size_t lists = 0;
  for (const Collective& c : span) lists += c.op == CollectiveOp::all_to_all && c.counts != nullptr ? 1 : 0;
  sent_.reserve(lists * static_cast<size_t>(size));
  received_.resize(lists * static_cast<size_t>(size));
  for (const Collective& c : span) {
    if (c.op == CollectiveOp::all_to_all && c.counts != nullptr) add_counts(c);
    if (!is_pair(c)) continue;
    pairs_.push_back({counter.pair_note(c), {}, c.peer, c.op == CollectiveOp::send});
    Pair& pair = pairs_.back();
    records_.push_back(pair.sends
                           ? bytes(CollectiveOp::send, &pair.mine, nullptr, sizeof pair.mine, c.peer)
                           : bytes(CollectiveOp::recv, nullptr, &pair.other, sizeof pair.other, c.peer));
  }
}

void Announcement::add_counts(const Collective& c) {
  const size_t first = sent_.size();
  sent_.insert(sent_.end(), c.counts, c.counts + size_);
  expected_.insert(expected_.end(), c.counts + size_, c.counts + 2 * size_);
  records_.push_back(
      bytes(CollectiveOp::all_to_all, sent_.data() + first, received_.data() + first, sizeof(uint64_t)));
}

void Announcement::check(const EngineOptions& gang) const {
  for (int r = 0; r < static_cast<int>(others_.size()); ++r) {
    const CallNote& other = others_[static_cast<size_t>(r)];
    if (!equal_calls(mine_, other))
      refuse(gang, mine_, rank_, other, r, "ranks called different collectives");
    if (mine_.hash != other.hash)
      refuse(gang, mine_, rank_, other, r, "their counts per rank, or the calls before, differ");
  }
  for (size_t i = 0; i < received_.size(); ++i) {
    const int peer = static_cast<int>(i) % size_;
    if (received_[i] == expected_[i]) continue;
    CallNote theirs = mine_;
    theirs.count = received_[i];
    CallNote own = mine_;
    own.count = expected_[i];
    refuse(gang, own, rank_, theirs, peer, "the one expects another count than the other sends");
  }
  for (const Pair& pair : pairs_) {
    if (pair.sends || (pair.mine.hash == pair.other.hash && pair.mine.sequence == pair.other.sequence))
      continue;
    refuse(gang, pair.mine, rank_, pair.other, pair.peer, "the two ends differ");
  }
}

bool Announcement::precedes(const Announcement& later) const {
  if (!others_.empty() && !later.others_.empty()) return true;
  return std::any_of(pairs_.begin(), pairs_.end(), [&](const Pair& a) {
    return std::any_of(later.pairs_.begin(), later.pairs_.end(),
                       [&](const Pair& b) { return a.peer == b.peer && a.sends == b.sends; });
  });
}

}  // namespace gangway
