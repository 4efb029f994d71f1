// The sides of one table: ours, the machine's limits, other libraries; each is a set of ranks that waits to be
// asked.
//
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "collectives/measure.h"
#include "common/side.h"

namespace gangway::bench {

inline constexpr const char* kPeers[] = {"Open MPI", "MPICH", "Gloo"};
// Ours over an MPI, under its launcher, and that MPI by itself.
struct OverMpi {
  const char *ours, *peer;
};
inline constexpr OverMpi kOverMpis[] = {{"mpi on Open MPI", "Open MPI"}, {"mpi on MPICH", "MPICH"}};

class Sides {
 public:
  explicit Sides(const Crowd& crowd);
  ~Sides();
  Sides(const Sides&) = delete;
  Sides& operator=(const Sides&) = delete;

  bool has_ours() { return find("gangway") != nullptr; }
  std::vector<Column> columns(const Row& row);
  std::vector<Side*> that_overlap();  // have an asynchronous all_reduce
  void print() const;
  void print_lost() const;
  nlohmann::json json() const;

 private:
  Side* find(const std::string& name);
  void start(const std::string& name, Launch launch);
  void start_limit();
  void start_ours(const std::string& name, const std::string& program);
  // The MPI's own calls, then ours over it; `command` is the launcher and takes the number of ranks next.
  void start_mpi(const OverMpi& names, const std::string& compiler, const std::string& program,
                 const std::vector<std::string>& command);
  void start_gloo();

  int ranks_;
  std::string pin_, most_bytes_, rendezvous_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::map<std::string, std::string> absent_;
};

}  // namespace gangway::bench
