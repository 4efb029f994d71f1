// An engine's shared control memory: who is a member, what each member has published on each channel, and why
// the engine broke. A board lies in the slice of the rank that made it. It is freed, with the members'
// staging blocks, when the last member releases it.
//
// Thread rule: any thread; the fields are atomics.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "gang/host/presence/member.h"

namespace gangway::host {

class Board {
 public:
  // Makes a board in the slice of `member`, who is one of its members. `members` are ranks of the domain.
  static uint64_t create(Member& member, std::span<const int> members, const std::string& label);

  Board(std::shared_ptr<Arena> arena, uint64_t offset);
  // Opens a board whose offset another rank published, and which may have been freed since. Returns null if
  // the memory there cannot be a board.
  static std::unique_ptr<Board> find(const std::shared_ptr<Arena>& arena, uint64_t offset);
  ~Board();  // releases the board
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  void attach(int rank);  // from here on this object acts for that member

  // Keeps the child board at `offset`, which this member makes, until all members of the child have taken it.
  // If the engine breaks before, the half-made child is freed with this board. Each member can keep one child
  // at a time.
  void hold_child(uint64_t offset) noexcept;
  // Tells this board that its member has attached itself to `child`, which `maker` made.
  void child_taken(int maker, const Board& child) noexcept;
  void drop_child(uint64_t offset) noexcept;  // for a child that no member will take; its maker frees it
  uint64_t offset() const { return offset_; }
  int size() const { return size_; }
  // Names a member in a text: "rank 1", or "rank 1 (global rank 3)" on a board of some ranks of the domain,
  // or of all in another order. A global rank is a rank of the domain, as the launcher counts them.
  std::string rank_text(int r) const;
  bool renumbers() const;  // whether the board is such a one
  BoardHeader& header() const { return *header_; }
  MemberLine& member(int r) const { return members_[r]; }
  ChannelLine& channel(Channel c, int r) const {
    return channels_[static_cast<size_t>(c) * static_cast<size_t>(size_) + static_cast<size_t>(r)];
  }
  PairLine& pair(Channel c, int from, int to) const {
    const auto w = static_cast<size_t>(size_);
    return pairs_[(static_cast<size_t>(c) * w + static_cast<size_t>(from)) * w + static_cast<size_t>(to)];
  }

  bool broken() const { return header_->broken.load(std::memory_order_acquire) != 0; }
  // Stores the error that breaks the engine. Returns false if the board was broken already, which keeps its
  // first error.
  bool break_with(const Error& error, int by) noexcept;
  std::optional<Error> error(int own_rank) const;

  int64_t broken_ns() const;   // when the board broke; call it after error()
  bool has_left(int r) const;  // whether the rank left without a shutdown
  Mark mark_of(int r) const { return static_cast<Mark>(members_[r].mark.load(std::memory_order_acquire)); }
  void mark(Mark mark) noexcept;  // marks the member that this object acts for

  // Links a block of `domain_rank`'s slice that peers read, so that it is freed with the board.
  void keep_block(int domain_rank, uint64_t offset, size_t bytes);

 private:
  Board(std::shared_ptr<Arena> arena, uint64_t offset, uint32_t size);
  void end_child(int maker) noexcept;
  void free_all() noexcept;

  std::shared_ptr<Arena> arena_;
  uint64_t offset_;
  int size_ = 0;
  int rank_ = -1;
  BoardHeader* header_ = nullptr;
  MemberLine* members_ = nullptr;
  ChannelLine* channels_ = nullptr;
  PairLine* pairs_ = nullptr;
};

}  // namespace gangway::host
