// One rank under a launcher of MPI: mpi_rank WHAT. Ends with 0 and "well" on rank 0 if what was to be seen was seen.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "base/error_of.h"
#include "gang/agreement.h"
#include "gang/gang.h"
#include "gang/gang_matrix.h"
#include "gang/mpi/survivor.h"
#include "gang/sum_of.h"
#include "gang/works_in_flight.h"

namespace gangway::test {
namespace {

void expect(bool holds, const std::string& what) {
  if (!holds) fail(Code::internal, "does not hold: ", what);
}

void expect_error(Code code, const std::function<void()>& call) {
  const Error error = error_of(call);
  expect(error.code() == code, text("the error is ", name(error.code()), ": ", error.message()));
}

GangPtr make_root(int64_t timeout_ms = 60'000, const char* engine = "mpi") {
  GangOptions options;
  options.engine = engine;
  options.threads = 1;
  options.timeout_ms = timeout_ms;
  options.arena_bytes = uint64_t{256} << 20;
  return Gang::create(options);
}

void check_matrix() {
  const GangPtr root = make_root();
  expect(std::string(root->engine_name()) == "mpi", root->engine_name());
  expect(root->shared_memory() == nullptr, "no shared memory");
  small_matrix(*root);
  several_chunks(*root);
  root->shutdown(60'000);
}

// On several hosts nothing but MPI knows where the ranks meet.
void check_auto() {
  const GangPtr root = make_root(60'000, "auto");
  expect(std::string(root->engine_name()) == "mpi", root->engine_name());
  std::vector<float> x(10, 1);
  root->run_now(Channel::user, sum_of(x));
  expect(x[9] == static_cast<float>(root->size()), "a sum");
  root->shutdown(60'000);
}

// Two all-reduces in flight of more bytes than one piece has, whose ends are no whole pieces.
void check_large() {
  const GangPtr root = make_root();
  const size_t count = (size_t{3} << 20) / sizeof(float) + 5;
  std::vector<float> in(count), out(count), both(count);
  for (size_t i = 0; i < count; ++i)
    in[i] = both[i] = static_cast<float>(root->rank() + 1) + static_cast<float>(i % 7);
  Collective apart = sum_of(in);
  apart.out = out.data();
  const WorkPtr first = root->run(Channel::user, apart), second = root->run(Channel::user, sum_of(both));
  second->wait_input(Deadline::never());
  first->wait_input(Deadline::never());
  const int size = root->size();
  for (size_t i = 0; i < count; ++i) {
    const float sum =
        static_cast<float>(size * (size + 1) / 2) + static_cast<float>(size) * static_cast<float>(i % 7);
    expect(out[i] == sum && both[i] == sum, text("a sum, element ", i));
  }
  root->shutdown(60'000);
}

void check_in_flight() {
  const GangPtr root = make_root();
  dependent_works(*root);
  root->shutdown(60'000);
}

void check_children() {
  const GangPtr root = make_root();
  const GangPtr half = root->split(root->rank() % 2, root->rank());
  if (half->size() > 1) {
    expect(std::string(half->engine_name()) == "mpi", half->engine_name());
    small_matrix(*half);
  }
  const auto all =
      root->agreement().all_gather_bytes(Channel::user, std::string(static_cast<size_t>(root->rank()), 'x'));
  for (int r = 0; r < root->size(); ++r)
    expect(all[static_cast<size_t>(r)].size() == static_cast<size_t>(r), "bytes of every rank");
  expect(
      root->agreement().broadcast_bytes(Channel::user, "from " + std::to_string(root->rank()), 1) == "from 1",
      "bytes of rank 1");
  expect(root->agreement().all_sum(Channel::user, 1.5) == 1.5 * root->size(), "a sum");
  expect(root->engine().native_handle() != nullptr, "an MPI_Comm");
  expect_error(Code::not_supported, [&] { root->allocate_shared(64); });
  expect_error(Code::invalid_argument, [&] {
    const int ranks[] = {0, 0};
    root->create_gang(ranks);
  });
  std::vector<float> x(10, 1);
  root->run_now(Channel::tp, sum_of(x));
  expect(x[9] == static_cast<float>(root->size()), "the sum after a refusal");
  if (half->size() > 1) half->shutdown(60'000);
  root->shutdown(60'000);
}

void check_mismatch() {
  const GangPtr root = make_root();
  std::vector<float> x(10);
  Collective c = sum_of(x);
  if (root->rank() == 1) c.count = 5;
  const Error error = error_of([&] { root->run_now(Channel::user, c); });
  expect(error.code() == Code::mismatch, text(name(error.code()), ": ", error.message()));
  expect(error.message().find("10 f32") != std::string::npos &&
             error.message().find("5 f32") != std::string::npos,
         error.message());
  expect_error(Code::mismatch, [&] { root->barrier(); });
}

// Rank 1 does not come.
void check_timeout() {
  const GangPtr root = make_root(1000);
  std::vector<float> x(10);
  if (root->rank() == 1) {
    while (!root->error()) usleep(5000);
    return;
  }
  const Error error = error_of([&] { root->run_now(Channel::user, sum_of(x)); });
  expect(error.code() == Code::timeout, text(name(error.code()), ": ", error.message()));
  expect(error.message().find("rank 1") != std::string::npos, error.message());
}

// Rank 1 is killed; a launcher that lets the others live sees them get an error soon.
void check_kill() {
  outlive_peers();
  const GangPtr root = make_root(5000);
  std::vector<float> x(10);
  root->run_now(Channel::user, sum_of(x));
  usleep(300'000);  // the others have ended the call, too
  if (root->rank() == 1) die();
  const Error error = error_of([&] { root->run_now(Channel::user, sum_of(x)); });
  tell_as_survivor(root->rank(), error);
  _exit(0);
}

// The program keeps its gang, which it has shut down, until it ends.
void check_kept() {
  const GangPtr root = make_root();
  const GangPtr half = root->split(root->rank() % 2, root->rank());
  std::vector<float> x(10, 1);
  root->run_now(Channel::user, sum_of(x));
  root->shutdown(60'000);
  new GangPtr(root);  // no destructor runs before MPI ends
}

int run(const std::string& what) {
  const std::map<std::string, void (*)()> checks = {
      {"matrix", check_matrix},     {"in_flight", check_in_flight}, {"auto", check_auto},
      {"children", check_children}, {"kept", check_kept},           {"mismatch", check_mismatch},
      {"timeout", check_timeout},   {"kill", check_kill},           {"large", check_large}};
  alarm(300);  // no rank outlives a broken test for long
  try {
    checks.at(what)();
  } catch (const Error& error) {
    std::printf("failed: %s: %s\n", name(error.code()), error.message().c_str());
    return 1;
  }
  std::printf("well\n");
  std::fflush(stdout);
  // MPI is left without its end after a failure. Launchers may kill the others then: when all have told.
  if (what == "mismatch" || what == "timeout") {
    sleep(2);
    _exit(0);
  }
  return 0;
}

}  // namespace
}  // namespace gangway::test

int main(int count, char** arguments) { return count == 2 ? gangway::test::run(arguments[1]) : 2; }
