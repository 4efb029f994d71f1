// Collectives of Gloo's C++ library, ranks as processes over TCP on loopback (it has no shared memory).
// Arguments: socket path, rank, size, folder for the rendezvous.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "../collectives/job.h"
#include "../common/rank.h"

namespace {

using Reducer = void (*)(void*, const void*, const void*, size_t);

class Peer {
 public:
  Peer(int rank, int size, const char* folder) : size_(size) {
    gloo::transport::tcp::attr attr;
    attr.hostname = "localhost";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device);
    context_ = context;
    for (float** buffer : {&in_, &out_}) {
      *buffer = static_cast<float*>(std::aligned_alloc(4096, job_most_bytes()));
      bench_fill(*buffer, job_most_bytes() / 4, static_cast<unsigned>(rank) + 1);
    }
  }
  ~Peer() {
    std::free(in_);
    std::free(out_);
  }

  void barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  void call(const job& j) {
    const size_t whole = j.bytes / 4, part = whole / static_cast<size_t>(size_);
    switch (j.op) {
      case JOB_BARRIER: barrier(); return;
      case JOB_ALL_REDUCE: {
        gloo::AllreduceOptions options(context_);
        if (!j.in_place) options.setInput(in_, whole);
        options.setOutput(out_, whole);
        options.setReduceFunction(static_cast<Reducer>(&gloo::sum<float>));
        gloo::allreduce(options);
        return;
      }
      case JOB_ALL_GATHER: {
        gloo::AllgatherOptions options(context_);
        options.setInput(in_, part);
        options.setOutput(out_, part * static_cast<size_t>(size_));
        gloo::allgather(options);
        return;
      }
      case JOB_REDUCE_SCATTER: {  // its only one works in place on the whole
        if (scatter_ == nullptr || scatter_count_ != whole) {
          scatter_count_ = whole;
          scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
              context_, std::vector<float*>{out_}, static_cast<int>(whole),
              std::vector<int>(static_cast<size_t>(size_), static_cast<int>(part)));
        }
        scatter_->run();
        return;
      }
      case JOB_BROADCAST: {
        gloo::BroadcastOptions options(context_);
        options.setOutput(out_, whole);
        options.setRoot(0);
        gloo::broadcast(options);
        return;
      }
      case JOB_ALL_TO_ALL:
      case JOB_EXCHANGE:
      case JOB_SEND_RECV:
      case JOB_OVERLAP:
      case JOB_NONE: return;  // not asked
    }
  }

 private:
  int size_;
  std::shared_ptr<gloo::Context> context_;
  float *in_ = nullptr, *out_ = nullptr;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter_;
  size_t scatter_count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int rank = std::atoi(argv[2]), size = std::atoi(argv[3]);
  try {
    Peer peer(rank, size, argv[4]);
    bench_driver driver = bench_connect(argv[1], rank, "Gloo (C++ library, TCP on loopback)");
    char line[256];
    job j;
    while (bench_command(&driver, line, sizeof line)) {
      if (!job_read(line, &j)) {
        bench_reply(&driver, "error: %s", line);
        continue;
      }
      for (long i = 0; i < j.warmup; ++i) peer.call(j);
      peer.barrier();
      const double start = bench_seconds();
      for (long i = 0; i < j.calls; ++i) peer.call(j);
      bench_reply(&driver, "%.12g", (bench_seconds() - start) / static_cast<double>(j.calls));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
