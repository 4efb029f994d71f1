// An engine's shared control memory: who is a member, what each has published on each channel, why the engine
// broke. It lies in the slice of the rank that made it and is freed, with the members' staging blocks, when the last member
// releases it.
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
  // Made by one of its members, in its slice. `members`: ranks of the domain.
  static uint64_t create(Member& member, std::span<const int> members, const std::string& label);

  Board(std::shared_ptr<Arena> arena, uint64_t offset);
  // A board that another rank named and may have freed since: null when what lies there cannot be one.
  static std::unique_ptr<Board> find(const std::shared_ptr<Arena>& arena, uint64_t offset);
  ~Board();  // releases it
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  void attach(int rank);  // this object now speaks for that member

  // What a break leaves half made goes with the board that it was made on: this one holds the board at `offset`, which
  // this member makes, until all its members have taken it. One of each member at a time.
  void hold_child(uint64_t offset) noexcept;
  // `child`, which `maker` made, is attached to its member here.
  void child_taken(int maker, const Board& child) noexcept;
  void drop_child(uint64_t offset) noexcept;  // no member will take it: its maker frees it
  uint64_t offset() const { return offset_; }
  int size() const { return size_; }
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
  // The first error wins; false when there was one.
  bool break_with(const Error& error, int by) noexcept;
  std::optional<Error> error(int own_rank) const;

  int64_t broken_ns() const;   // when; after error()
  bool has_left(int r) const;  // without shutdown
  Mark mark_of(int r) const { return static_cast<Mark>(members_[r].mark.load(std::memory_order_acquire)); }
  void mark(Mark mark) noexcept;  // of the member this object speaks for

  // A block of `domain_rank`'s slice that peers read: freed with the board.
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
