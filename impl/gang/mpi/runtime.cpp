#include "gang/mpi/runtime.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/kept_signals.h"

namespace gangway::mpi {
namespace {

std::atomic<int> roots = 0;
std::atomic<bool> disorder = false;

bool is_over() {
  int over = 0;
  MPI_Finalized(&over);
  return over != 0;
}

// MPI_Finalize waits for the other ranks, so it is called only if all root gangs were shut down in order. A
// gang that was shut down may still exist: it makes no more calls of MPI.
// Without it the launcher notices that this process ended abnormally, and ends the job.
void end() {
  if (roots == 0 && !disorder && !is_over()) MPI_Finalize();
}

}  // namespace

void start() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int running = 0, threads = 0;
  MPI_Initialized(&running);
  if (is_over()) fail(Code::invalid_state, "gang.create: MPI was finalized in this process");
  if (running != 0) {
    check(MPI_Query_thread(&threads), "MPI_Query_thread");
  } else {
    const KeptSignals kept;  // MPI loads its networks' libraries
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "MPI_Init_thread");
    std::atexit(end);
  }
  if (threads < MPI_THREAD_MULTIPLE)
    fail(Code::not_supported, "gang.create: this MPI runs with thread level ", threads,
         ", but engine \"mpi\" needs ", MPI_THREAD_MULTIPLE,
         " (MPI_THREAD_MULTIPLE); initialize MPI with it or let gangway do so");
}

void began_root() { ++roots; }

void ended_root(bool in_order) {
  if (!in_order) disorder = true;
  --roots;
}

void check(int answer, const char* call) {
  if (answer == MPI_SUCCESS) return;
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(answer, words, &length);
  fail(Code::gang, call, ": ", words);
}

MPI_Comm subset(MPI_Comm comm, std::span<const int> ranks, int tag) {
  MPI_Group all, some;
  check(MPI_Comm_group(comm, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
  MPI_Comm made = MPI_COMM_NULL;
  const int answer = MPI_Comm_create_group(comm, some, tag, &made);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  check(answer, "MPI_Comm_create_group");
  check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return made;
}

MPI_Comm copy_of(MPI_Comm comm, int tag) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return subset(comm, ranks, tag);
}

}  // namespace gangway::mpi
