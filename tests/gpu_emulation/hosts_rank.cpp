// One rank of a gang on device "cuda" that its environment describes, on one of several hosts. Exit status 0:
// all was right; 10 + the error's code otherwise, its text on stderr.
//
//   cuda_hosts_rank small    sums of several lengths; prints the engine's name and NCCL's interface
//   cuda_hosts_rank train    two steps of a sharded model; prints the bits of the losses and the parameters
//   cuda_hosts_rank register a sum in registered memory; prints how NCCL has registered it
//   cuda_hosts_rank sums     sums until a call fails; prints "began" before the first
#include <dlfcn.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/log.h"
#include "support/placed.h"
#include "train/rig.h"

#include <nccl.h>

namespace gangway::test {
namespace {

void sum(Gang& gang, size_t count) {
  Stream& stream = gang.device().stream();
  const auto n = static_cast<int64_t>(count);
  const Tensor x = Tensor::allocate(gang.device().allocator(), DType::f32, {n});
  {
    HostMemory host(x);
    for (size_t i = 0; i < count; ++i) host.data<float>()[i] = static_cast<float>(gang.rank() + 1);
    if (count != 0) host.write();
  }
  Collective c;
  c.op = CollectiveOp::all_reduce;
  c.reduce = Reduce::sum;
  c.in = c.out = x.raw();
  c.count = count;
  gang.run(Channel::user, c, &stream)->wait(Deadline::after_ms(60'000));
  const auto wanted = static_cast<float>(gang.size() * (gang.size() + 1) / 2);
  const HostMemory host(x);
  for (size_t i = 0; i < count; ++i)
    if (host.data<float>()[i] != wanted)
      fail(Code::internal, "element ", i, " of ", count, " is ", host.data<float>()[i], ", not ", wanted);
}

void small(Gang& gang) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{777}, size_t{100'003}}) sum(gang, count);
  const auto interface = reinterpret_cast<const char* (*)()>(
      dlsym(dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), "gpu_emulation_interface"));
  std::printf("engine %s, interface \"%s\"\n", gang.engine_name(), interface());
}

void register_memory(Gang& gang) {
  const auto buffer = Buffer::allocate(gang.registrable(), size_t{1} << 20);
  gang.register_memory(Channel::user, {&buffer, 1}, 0);
  sum(gang, 1000);
  std::printf("registered %d\n", gang.is_registered(buffer->data()) ? 1 : 0);
  for (const LogLine& line : log_lines(0))
    if (line.message.starts_with("engine \"nccl\"")) std::printf("%s\n", line.message.c_str());
}

void train(Gang& gang) {
  const Rig rig = llama_rig(gang, Strategy::full_shard, DType::f32);
  for (int step = 0; step < 2; ++step) {
    const double loss = rig.step(pattern_batch(*rig.model, 1, 6, gang.rank())).loss;
    std::printf("loss %016llx\n", static_cast<unsigned long long>(std::bit_cast<uint64_t>(loss)));
  }
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const double x : rig.parameters()) hash = (hash ^ std::bit_cast<uint64_t>(x)) * 0x100000001b3ull;
  std::printf("parameters %016llx\n", static_cast<unsigned long long>(hash));
}

void sums(Gang& gang) {
  sum(gang, 1);
  std::printf("began\n");
  std::fflush(stdout);
  for (;;) sum(gang, 1000);
}

void run(const std::string& what) {
  setenv("GANGWAY_MODULES", placed("@build@/tests/gpu_emulation").c_str(), 1);
  GangOptions options;
  options.device = "cuda";
  options.threads = 1;
  options.timeout_ms = 60'000;
  options.arena_bytes = uint64_t{256} << 20;
  const GangPtr gang = Gang::create(options);
  if (what == "sums") return sums(*gang);
  if (what == "train")
    train(*gang);
  else if (what == "register")
    register_memory(*gang);
  else
    small(*gang);
  gang->shutdown(60'000);
}

}  // namespace
}  // namespace gangway::test

int main(int count, char** arguments) {
  try {
    gangway::test::run(count > 1 ? arguments[1] : "small");
    return 0;
  } catch (const gangway::Error& error) {
    std::fprintf(stderr, "%s: %s (peer %d)\n", gangway::name(error.code()), error.what(), error.peer);
    std::fflush(stderr);
    _exit(10 + static_cast<int>(error.code()));  // a peer that is lost leaves the GPU with a kernel
  }
}
