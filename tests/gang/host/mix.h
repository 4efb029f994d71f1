// An endless mix of calls for ranks of which one dies: every operation, one element and many chunks, in the
// arena (peers reach into it) and outside (staged), waited for at once and left in flight, on two channels.
// All ranks draw the same calls from the same seed; where its tensors lie is each rank's own.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gang/engine.h"
#include "gang/rank.h"

namespace gangway::test {

inline uint64_t drawn(uint64_t seed, uint64_t i) {  // splitmix64
  uint64_t x = seed * 0x9e3779b97f4a7c15u + (i + 1) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

class HostMix {
 public:
  HostMix(Engine& engine, Rank& rank, uint64_t seed)
      : engine_(engine),
        stream_(rank.device().stream()),
        seed_(seed),
        rank_(engine.rank()),
        size_(engine.size()) {
    constexpr size_t kBytes = kMost * sizeof(float);
    for (const bool inside : {false, true}) {
      const auto memory = inside ? engine.shared_memory()->allocator() : rank.device().allocator();
      in_[inside] = Buffer::allocate(memory, kBytes);
      std::fill_n(static_cast<float*>(in_[inside]->data()), kMost, static_cast<float>(rank_ + 1));
      for (Seat& seat : seats_) seat.out[inside] = Buffer::allocate(memory, kBytes);
    }
  }

  // The next call of the mix. A result that came must be right, also while a peer is dying.
  void next() {
    const uint64_t draw = drawn(seed_, calls_);
    Seat& seat = seats_[calls_ % kSeats];
    finish(seat);
    const bool inside = drawn(seed_ + 1 + static_cast<uint64_t>(rank_), calls_) % 2 == 1;
    begin(seat, draw, inside);
    ++calls_;
    if (draw >> 20 & 1) finish(seat);
  }

 private:
  static constexpr size_t kSeats = 4;      // calls in flight
  static constexpr size_t kMost = 60'000;  // elements of a tensor

  using Places = std::array<std::shared_ptr<Buffer>, 2>;  // outside the arena, inside

  struct Seat {
    Places out;
    WorkPtr work;
    std::vector<std::pair<size_t, float>> wanted;  // some elements of the output
    const float* got = nullptr;
    CollectiveOp op = CollectiveOp::barrier;
  };

  void begin(Seat& seat, uint64_t draw, bool inside) {
    static constexpr CollectiveOp kOps[] = {CollectiveOp::all_reduce,     CollectiveOp::all_gather,
                                            CollectiveOp::reduce_scatter, CollectiveOp::broadcast,
                                            CollectiveOp::reduce,         CollectiveOp::all_to_all,
                                            CollectiveOp::barrier,        CollectiveOp::send};
    static constexpr size_t kCounts[] = {4, 3000, kMost, kMost};
    Collective c;
    c.op = kOps[draw % std::size(kOps)];
    const bool splits = c.op == CollectiveOp::all_gather || c.op == CollectiveOp::reduce_scatter ||
                        c.op == CollectiveOp::all_to_all;
    c.count = kCounts[draw >> 8 & 3] / static_cast<size_t>(splits ? size_ : 1);
    if (c.op == CollectiveOp::barrier) c.count = 0;
    c.in = in_[inside]->data();
    c.out = seat.out[inside]->data();
    c.peer = static_cast<int>((draw >> 12) % static_cast<uint64_t>(size_));
    c.async_input = (draw >> 18 & 1) != 0;
    const bool folds = c.op == CollectiveOp::all_reduce || c.op == CollectiveOp::reduce_scatter ||
                       c.op == CollectiveOp::reduce;
    if (folds) c.reduce = Reduce::sum;
    seat.op = c.op;
    seat.got = static_cast<const float*>(c.out);
    expect(seat, c);
    for (const auto& [i, value] : seat.wanted) static_cast<float*>(c.out)[i] = -1;
    const Channel channel = draw >> 16 & 1 ? Channel::user : Channel::tp;
    seat.work = c.op == CollectiveOp::send ? pass_on(c, channel) : engine_.run(channel, {&c, 1}, stream_);
  }

  // Round a ring: to the next rank and from the one before, as one launch.
  WorkPtr pass_on(Collective send, Channel channel) {
    Collective both[2] = {send, send};
    both[0].peer = (rank_ + 1) % size_;
    both[0].out = nullptr;
    both[1].op = CollectiveOp::recv;
    both[1].peer = (rank_ + size_ - 1) % size_;
    both[1].in = nullptr;
    both[0].async_input = both[1].async_input = false;
    return engine_.run(channel, both, stream_);
  }

  void expect(Seat& seat, const Collective& c) {
    seat.wanted.clear();
    if (c.count == 0) return;
    const auto sum = static_cast<float>(size_ * (size_ + 1) / 2);
    const auto part = [&](int j, float value) {
      seat.wanted.emplace_back(static_cast<size_t>(j) * c.count, value);
      seat.wanted.emplace_back(static_cast<size_t>(j + 1) * c.count - 1, value);
    };
    switch (c.op) {
      case CollectiveOp::all_gather:
      case CollectiveOp::all_to_all:
        for (int j = 0; j < size_; ++j) part(j, static_cast<float>(j + 1));
        break;
      case CollectiveOp::broadcast: part(0, static_cast<float>(c.peer + 1)); break;
      case CollectiveOp::reduce:
        if (rank_ == c.peer) part(0, sum);
        break;
      case CollectiveOp::send: part(0, static_cast<float>((rank_ + size_ - 1) % size_ + 1)); break;
      default: part(0, sum);
    }
  }

  void finish(Seat& seat) {
    if (seat.work == nullptr) return;
    seat.work->wait_input(Deadline::never());
    seat.work.reset();
    for (const auto& [i, value] : seat.wanted)
      if (seat.got[i] != value)
        fail(Code::internal, name(seat.op), " on rank ", rank_, " of ", size_, ": element ", i, " is ",
             seat.got[i], ", not ", value);
  }

  Engine& engine_;
  Stream& stream_;
  const uint64_t seed_;
  const int rank_, size_;
  Places in_;
  std::array<Seat, kSeats> seats_;
  uint64_t calls_ = 0;
};

}  // namespace gangway::test
