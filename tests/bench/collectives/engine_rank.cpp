// A rank of ours below the C ABI, to tell what a call costs above the engine. Arguments: socket path, 1 to
// pin. Job as gangway_rank's on arena memory, in place; ARENA 0: Engine::run and its work, 1: the gang's
// checks too.
#include "common/rank.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "collectives/job.h"
#include "gang/gang.h"

using namespace gangway;

namespace {

Collective record_of(const job& j, float* data) {
  Collective c;
  if (j.op == JOB_BARRIER) return c;
  c.op = CollectiveOp::all_reduce;
  c.in = c.out = data;
  c.count = j.bytes / sizeof(float);
  c.reduce = Reduce::sum;
  return c;
}

void call(Gang& gang, const job& j, const Collective& record) {
  if (j.arena == 1) return gang.run_now(Channel::user, record);
  const std::span<const Collective> span(&record, 1);
  if (const WorkPtr rest = gang.engine().run_now(Channel::user, span, gang.device().stream()))
    rest->wait_input(Deadline::never());
}

int serve(const char* socket, bool pin) {
  const std::shared_ptr<Gang> gang = Gang::create({});
  if (pin) bench_pin(gang->rank(), gang->size());
  const std::shared_ptr<Buffer> memory = Buffer::allocate(gang->allocator(), job_most_bytes());
  float* data = static_cast<float*>(memory->data());
  bench_fill(data, job_most_bytes() / sizeof(float), static_cast<unsigned>(gang->rank()) + 1);
  bench_driver driver = bench_connect(socket, gang->rank(), gang->engine_name());
  char line[256];
  job j;
  while (bench_command(&driver, line, sizeof line)) {
    if (!job_read(line, &j) || (j.op != JOB_BARRIER && j.op != JOB_ALL_REDUCE)) {
      bench_reply(&driver, "error: %s", line);
      continue;
    }
    const Collective record = record_of(j, data);
    for (long i = 0; i < j.warmup; ++i) call(*gang, j, record);
    gang->barrier(Channel::user);
    const double start = bench_seconds();
    for (long i = 0; i < j.calls; ++i) call(*gang, j, record);
    bench_reply(&driver, "%.12g", (bench_seconds() - start) / static_cast<double>(j.calls));
  }
  gang->shutdown(-1);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    return serve(argv[1], std::atoi(argv[2]) != 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
