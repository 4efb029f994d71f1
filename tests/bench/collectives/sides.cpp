#include "collectives/sides.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "common/copy.h"
#include "common/peers.h"

namespace gangway::bench {
namespace {

// Else the temporaries of peers are page-faulted in each call.
const std::vector<std::pair<std::string, std::string>> kKeepTemporaries = {
    {"MALLOC_MMAP_THRESHOLD_", "1073741824"}, {"MALLOC_TRIM_THRESHOLD_", "2147483648"}};

}  // namespace

Sides::Sides(const Crowd& crowd)
    : ranks_(crowd.ranks),
      pin_(crowd.crowded() ? "0" : "1"),
      most_bytes_(std::to_string(size_t{crowd.crowded() ? 4u : 64u} << 20)) {
  start_limit();
  start_ours("gangway", "gangway_rank");
  start_ours("inside", "engine_rank");
  start_mpi(kOverMpis[0], "mpicc.openmpi", "mpi_peer_openmpi",
            {"mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n"});
  start_mpi(kOverMpis[1], "mpicc.mpich", "mpi_peer_mpich", {"mpiexec.mpich", "-bind-to", "none", "-n"});
  start_gloo();
}

Sides::~Sides() {
  sides_.clear();
  if (!rendezvous_.empty()) std::filesystem::remove_all(rendezvous_);
}

std::vector<Column> Sides::columns(const Row& row) {
  const bool inside = row.op == JOB_BARRIER || (row.op == JOB_ALL_REDUCE && row.bytes <= 16384);
  std::vector<Column> all;
  for (int copy = 0; copy < 3; ++copy) all.push_back({name(kCopies[copy]), find("limit"), copy});
  all.push_back({"arena", find("gangway"), 1});
  if (row.op != JOB_BARRIER) all.push_back({"plain", find("gangway"), 0});
  if (inside) {
    all.push_back({"gang", find("inside"), 1});
    all.push_back({"engine", find("inside"), 0});
  }
  for (const std::string peer : kPeers)
    if (peer != "Gloo" || row.op < JOB_ALL_TO_ALL) all.push_back({peer, find(peer), 0});
  for (const OverMpi& mpi : kOverMpis) all.push_back({mpi.ours, find(mpi.ours), 0});
  std::erase_if(all, [](const Column& column) { return column.side == nullptr; });
  return all;
}

std::vector<Side*> Sides::that_overlap() {
  std::vector<Side*> all;
  for (const char* name : {"gangway", "Open MPI", "MPICH"})
    if (Side* const side = find(name); side != nullptr && side->alive()) all.push_back(side);
  return all;
}

void Sides::print() const {
  for (const auto& side : sides_) std::printf("  %-9s %s\n", side->name().c_str(), side->greeting().c_str());
  for (const auto& [name, why] : absent_) std::printf("  %-9s ABSENT: %s\n", name.c_str(), why.c_str());
}

void Sides::print_lost() const {
  for (const auto& side : sides_)
    if (!side->alive())
      std::printf("  %s was lost on the way: %s\n", side->name().c_str(), side->why().c_str());
}

nlohmann::json Sides::json() const {
  nlohmann::json all;
  for (const auto& side : sides_) all[side->name()] = side->greeting();
  for (const auto& [name, why] : absent_) all[name] = "absent: " + why;
  return all;
}

Side* Sides::find(const std::string& name) {
  for (const auto& side : sides_)
    if (side->name() == name) return side.get();
  return nullptr;
}

void Sides::start(const std::string& name, Launch launch) {
  std::string why;
  launch.environment.emplace_back(JOB_MOST_BYTES_VARIABLE, most_bytes_);
  auto side = Side::start(name, ranks_, launch, 40, &why);
  if (side)
    sides_.push_back(std::move(side));
  else
    absent_[name] = why;
}

void Sides::start_limit() {
  const std::string memory = "/gangway-bench-" + std::to_string(getpid());
  Launch launch;
  launch.command = {
      beside_this_program("limit_rank"), "{socket}", "{copy}", std::to_string(ranks_), memory, pin_};
  launch.copies = ranks_;
  start("limit", launch);
  shm_unlink(memory.c_str());
}

void Sides::start_ours(const std::string& name, const std::string& program) {
  Launch launch;
  launch.command = {GANGWAY_BENCH_GANGRUN,
                    "-n",
                    std::to_string(ranks_),
                    "--no-prefix",
                    "--",
                    beside_this_program(program),
                    "{socket}",
                    pin_,
                    "auto"};
  start(name, launch);
}

void Sides::start_mpi(const OverMpi& names, const std::string& compiler, const std::string& program,
                      const std::vector<std::string>& command) {
  const auto start_ranks = [&](const char* name, const std::string& path) {
    Launch launch;
    launch.command = command;
    for (const std::string& word :
         {std::to_string(ranks_), path, std::string("{socket}"), pin_, std::string("mpi")})
      launch.command.push_back(word);
    launch.environment = kKeepTemporaries;
    start(name, launch);
  };
  std::string why;
  const std::string path = compile_peer("mpi_peer.c", program, compiler + " -O2", "", &why);
  if (path.empty()) return (void)(absent_[names.peer] = absent_[names.ours] = why);
  start_ranks(names.peer, path);
  start_ranks(names.ours, beside_this_program("gangway_rank"));
}

void Sides::start_gloo() {
  std::string why;
  const std::string path =
      compile_peer("gloo_peer.cpp", "gloo_peer", "g++ -std=c++17 -O2 -w", "-lgloo -pthread", &why);
  if (path.empty()) {
    absent_["Gloo"] = why;
    return;
  }
  char folder[] = "/tmp/gangway-gloo-XXXXXX";
  if (mkdtemp(folder) == nullptr) return;
  rendezvous_ = folder;
  Launch launch;
  launch.command = {path, "{socket}", "{copy}", std::to_string(ranks_), rendezvous_};
  launch.copies = ranks_;
  launch.environment = kKeepTemporaries;
  start("Gloo", launch);
}

}  // namespace gangway::bench
