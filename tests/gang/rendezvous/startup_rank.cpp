// One rank as a launcher would start it: reads the environment, connects, meets the others. Exit status 0:
// all met; 10 + the error's code otherwise, its text on stderr.
//
//   startup_rank meet [generations]   every rank puts its number and waits for all, once per generation
//   startup_rank die                  rank 0 kills itself once all are connected; the others wait for more
//   startup_rank read                 read_environment only; prints the place
//   startup_rank gang [liveness_ms]   makes a gang and sums over it
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "gang/agreement.h"
#include "gang/gang.h"
#include "gang/rendezvous/startup.h"

namespace gangway {
namespace {

void meet(const Environment& environment, Store& store, const std::string& what) {
  const Deadline deadline = Deadline::after_ms(20'000);
  store.put(what + std::to_string(environment.rank), std::to_string(environment.rank));
  for (int peer = 0; peer < environment.size; ++peer) {
    const std::string answer = store.wait(what + std::to_string(peer), deadline);
    if (answer != std::to_string(peer)) fail(Code::internal, "rank ", peer, " said ", answer);
  }
}

void make_gang(int64_t liveness_ms) {
  GangOptions options;
  options.liveness_ms = liveness_ms;
  options.timeout_ms = 20'000;
  options.threads = 1;
  options.arena_bytes = uint64_t{1} << 30;
  const std::shared_ptr<Gang> gang = Gang::create(options);
  if (gang->agreement().all_sum(Channel::user, 1) != gang->size())
    fail(Code::internal, "the sum is not the size");
  gang->shutdown(20'000);
}

void run(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "meet";
  if (what == "gang") return make_gang(count > 2 ? std::atoi(arguments[2]) : 0);
  const int generations = count > 2 ? std::atoi(arguments[2]) : 1;
  const Environment environment = read_environment();
  if (what == "read") {
    std::printf("%s %d/%d local %d/%d restart %d\n", environment.launcher.c_str(), environment.rank,
                environment.size, environment.local_rank, environment.local_size, environment.restart);
    return;
  }
  for (int generation = 0; generation < generations; ++generation) {
    const auto store = connect(environment, generation, Deadline::after_ms(20'000));
    meet(environment, *store, "first");
    if (what == "die") {
      if (environment.rank == 0) kill(getpid(), SIGKILL);
      store->wait("never", Deadline::after_ms(20'000));
    }
  }
}

}  // namespace
}  // namespace gangway

int main(int count, char** arguments) {
  try {
    gangway::run(count, arguments);
    return 0;
  } catch (const gangway::Error& error) {
    std::fprintf(stderr, "%s (peer %d)\n", error.what(), error.peer);
    return 10 + static_cast<int>(error.code());
  }
}
