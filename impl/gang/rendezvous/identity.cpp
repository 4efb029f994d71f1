#include "gang/rendezvous/identity.h"

#include <string.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/library_build.h"
#include "gang/rendezvous/hmac.h"

namespace gangway {
namespace {

std::string number_of_space(const char* kind) {
  struct stat about {};
  const std::string path = text("/proc/self/ns/", kind);
  return stat(path.c_str(), &about) == 0 ? text(" ", about.st_dev, ":", about.st_ino) : " ?";
}

std::string build_of(const RankIdentity& rank) {
  return {rank.build, strnlen(rank.build, sizeof rank.build)};
}

}  // namespace

std::string network_of_host() {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name);
  return name + number_of_space("net");
}

std::string hash_of_network() { return hex(hmac_sha256({}, {network_of_host()})).substr(0, 16); }

RankIdentity own_identity() {
  RankIdentity own{};
  (network_of_host() + number_of_space("pid")).copy(own.host, sizeof own.host - 1);
  std::string(library_build()).copy(own.build, sizeof own.build - 1);
  return own;
}

bool on_one_host(std::span<const RankIdentity> all) {
  bool one = true;
  for (size_t r = 1; r < all.size(); ++r) {
    check_same_build(static_cast<int>(r), build_of(all[r]), 0, build_of(all[0]));
    one = one && std::memcmp(all[r].host, all[0].host, sizeof all[0].host) == 0;
  }
  return one;
}

void check_same_build(int rank, const std::string& build, int other_rank, const std::string& other_build) {
  if (build == other_build) return;
  fail(Code::invalid_state, "gang.create: rank ", rank, " runs build ", build.empty() ? "?" : build,
       " of the library, rank ", other_rank, " build ", other_build.empty() ? "?" : other_build,
       "; start all ranks with the same library");
}

}  // namespace gangway
