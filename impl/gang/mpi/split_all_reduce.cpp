#include "gang/mpi/split_all_reduce.h"

#include <algorithm>
#include <cstring>

#include "gang/mpi/runtime.h"

namespace gangway::mpi {
namespace {

#ifdef OPEN_MPI
constexpr int kFewRanks = 3;  // from four on, Open MPI's own sums in a ring
#else
constexpr int kFewRanks = 1;  // MPICH's own is as fast as its MPI_Allreduce
#endif
constexpr size_t kManyBytes = 1 << 20;
constexpr size_t kPieceBytes = 1 << 20;  // is still in the caches when it is reduced
constexpr size_t kWindow = 4;            // pieces that are received from each peer at the same time

bool all_done(std::vector<MPI_Request>& requests) {
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
  return done != 0;
}

}  // namespace

bool SplitAllReduce::suits(const Collective& c, int size) {
  return c.op == CollectiveOp::all_reduce && size > 1 && size <= kFewRanks &&
         c.count * item_bytes(c.dtype) >= kManyBytes;
}

SplitAllReduce::SplitAllReduce(const Collective& c, MPI_Datatype type, MPI_Op op, MPI_Comm comm, int tag)
    : c_(c), type_(type), op_(op), comm_(comm), tag_(tag), item_(item_bytes(c.dtype)) {
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  piece_elements_ = kPieceBytes / item_;
  const auto peers = static_cast<size_t>(size_ - 1);
  landings_.resize(kWindow * peers * kPieceBytes);
  receives_.assign(kWindow * peers, MPI_REQUEST_NULL);
  for (size_t i = 0; i < std::min(kWindow, pieces_of(part_of(rank_))); ++i) receive_input(i);
  send_inputs();
}

SplitAllReduce::Part SplitAllReduce::part_of(int rank) const {
  const auto ranks = static_cast<size_t>(size_), r = static_cast<size_t>(rank);
  const size_t each = c_.count / ranks, longer = c_.count % ranks;  // the first ones have one element more
  return {each * r + std::min(r, longer), each + (r < longer ? 1 : 0)};
}

SplitAllReduce::Part SplitAllReduce::piece_of(const Part& part, size_t i) const {
  const size_t first = i * piece_elements_;
  return {part.first + first, std::min(piece_elements_, part.count - first)};
}

size_t SplitAllReduce::pieces_of(const Part& part) const {
  return (part.count + piece_elements_ - 1) / piece_elements_;
}

// The place of the peer's piece, and of its request in receives_.
char* SplitAllReduce::landing(int peer, size_t piece) {
  const size_t row = piece % kWindow * static_cast<size_t>(size_ - 1);
  return landings_.data() + (row + static_cast<size_t>(peer < rank_ ? peer : peer - 1)) * kPieceBytes;
}

void SplitAllReduce::send_inputs() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Part part = part_of(peer);
    for (size_t i = 0; i < pieces_of(part); ++i) {
      const Part piece = piece_of(part, i);
      others_.push_back(MPI_REQUEST_NULL);
      check(MPI_Isend(in(piece.first), static_cast<int>(piece.count), type_, peer, tag_, comm_,
                      &others_.back()),
            "MPI_Isend");
    }
  }
}

void SplitAllReduce::receive_input(size_t i) {
  const Part piece = piece_of(part_of(rank_), i);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    char* const place = landing(peer, i);
    const size_t request = static_cast<size_t>(place - landings_.data()) / kPieceBytes;
    check(MPI_Irecv(place, static_cast<int>(piece.count), type_, peer, tag_, comm_, &receives_[request]),
          "MPI_Irecv");
  }
}

// Reduces the pieces that have come, in order. Returns whether this rank's part is reduced.
bool SplitAllReduce::reduce_what_came() {
  const size_t pieces = pieces_of(part_of(rank_)), peers = static_cast<size_t>(size_ - 1);
  for (; reduced_ < pieces; ++reduced_) {
    int came = 0;
    check(MPI_Testall(static_cast<int>(peers), receives_.data() + reduced_ % kWindow * peers, &came,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (came == 0) return false;
    reduce_piece(reduced_);
    if (reduced_ + kWindow < pieces) receive_input(reduced_ + kWindow);
  }
  return true;
}

void SplitAllReduce::reduce_piece(size_t i) {
  const Part piece = piece_of(part_of(rank_), i);
  if (c_.in != c_.out) std::memcpy(out(piece.first), in(piece.first), piece.count * item_);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_)
      check(MPI_Reduce_local(landing(peer, i), out(piece.first), static_cast<int>(piece.count), type_, op_),
            "MPI_Reduce_local");
}

void SplitAllReduce::exchange_results() {
  others_.clear();
  const Part own = part_of(rank_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Part part = part_of(peer);
    for (size_t i = 0; i < pieces_of(part); ++i) {
      const Part piece = piece_of(part, i);
      others_.push_back(MPI_REQUEST_NULL);
      check(MPI_Irecv(out(piece.first), static_cast<int>(piece.count), type_, peer, tag_ + 1, comm_,
                      &others_.back()),
            "MPI_Irecv");
    }
    for (size_t i = 0; i < pieces_of(own); ++i) {
      const Part piece = piece_of(own, i);
      others_.push_back(MPI_REQUEST_NULL);
      check(MPI_Isend(out(piece.first), static_cast<int>(piece.count), type_, peer, tag_ + 1, comm_,
                      &others_.back()),
            "MPI_Isend");
    }
  }
  exchanges_ = true;
}

bool SplitAllReduce::poll() {
  // The second step writes where the first one sends from, if the call is in place.
  if (!exchanges_) {
    if (!reduce_what_came() || !all_done(others_)) return false;
    exchange_results();
  }
  return all_done(others_);
}

}  // namespace gangway::mpi
