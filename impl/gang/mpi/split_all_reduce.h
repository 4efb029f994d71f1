// An all-reduce of many bytes among few ranks, made of sends and receives. Open MPI's own non-blocking one
// sums everything on one rank and then sends it back, below four ranks: it takes twice as long as its
// MPI_Allreduce, which cannot be used because nothing could end the wait for a lost peer. Here each rank
// receives its part of every input, reduces it, and sends the result to the others.
//
// Thread rule: under the mutex of the work (mpi_work.h).
#pragma once

#include <mpi.h>

#include <vector>

#include "gang/collective.h"

namespace gangway::mpi {

class SplitAllReduce {
 public:
  // Whether the collective is better split. It depends only on what is equal on all ranks.
  static bool suits(const Collective& c, int size);
  // `tag` and the next number separate the messages of this call from those of others on the communicator.
  SplitAllReduce(const Collective& c, MPI_Datatype type, MPI_Op op, MPI_Comm comm, int tag);

  // Goes on as far as possible now. Returns whether the call has ended. Throws what MPI reports.
  bool poll();

 private:
  struct Part {
    size_t first, count;  // elements
  };
  Part part_of(int rank) const;
  Part piece_of(const Part& part, size_t i) const;  // its i-th piece
  size_t pieces_of(const Part& part) const;
  char* out(size_t element) const { return static_cast<char*>(c_.out) + element * item_; }
  const char* in(size_t element) const { return static_cast<const char*>(c_.in) + element * item_; }
  char* landing(int peer, size_t piece);

  void send_inputs();
  void receive_input(size_t piece);
  bool reduce_what_came();
  void reduce_piece(size_t piece);
  void exchange_results();

  const Collective c_;
  const MPI_Datatype type_;
  const MPI_Op op_;
  const MPI_Comm comm_;
  const int tag_;
  const size_t item_;
  int rank_ = 0, size_ = 0;
  size_t piece_elements_ = 0;
  std::vector<char> landings_;         // kWindow pieces from each peer
  std::vector<MPI_Request> receives_;  // of the oldest pieces that are not reduced
  std::vector<MPI_Request> others_;    // sends, and in the second step the receives of results
  size_t reduced_ = 0;                 // pieces of this rank's part
  bool exchanges_ = false;             // the second step has begun
};

}  // namespace gangway::mpi
