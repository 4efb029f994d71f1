// Every function of NCCL that the library calls, once, by one rank: does it exist, does it do what the library expects,
// and does it return? Prints a line for each. For the first hour on a GPU (README.md).
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "device/device.h"
#include "gang/nccl/api.h"
#include "support/host_memory.h"
#include "tensor/tensor.h"

namespace gangway {
namespace {

using nccl::api;
using nccl::check;

constexpr std::chrono::seconds kPatience{20};

class Once {
 public:
  Once() : device_(make_device("cuda")) {}

  // Returns the number of calls that failed.
  int run() {
    step("ncclGetVersion", [&] { std::printf("        NCCL %d\n", api().version); });
    step("ncclCommInitRankConfig", [&] { open(); });
    if (comm_ == nullptr) return failed_;
    sums(ncclFloat32, DType::f32, "f32");
    sums(ncclBfloat16, DType::bf16, "bf16");
    sums(ncclFloat64, DType::f64, "f64");
    step("ncclReduce", [&] {
      moves([&](auto in, auto out) {
        return api().reduce(in, out, kCount, ncclFloat32, ncclSum, 0, comm_, stream());
      });
    });
    step("ncclReduceScatter", [&] {
      moves([&](auto in, auto out) {
        return api().reduce_scatter(in, out, kCount, ncclFloat32, ncclSum, comm_, stream());
      });
    });
    step("ncclAllGather", [&] {
      moves(
          [&](auto in, auto out) { return api().all_gather(in, out, kCount, ncclFloat32, comm_, stream()); });
    });
    step("ncclBroadcast", [&] {
      moves([&](auto in, auto out) {
        return api().broadcast(in, out, kCount, ncclFloat32, 0, comm_, stream());
      });
    });
    step("ncclSend and ncclRecv in a group", [&] {
      moves([&](auto in, auto out) {
        check(api().group_start(), "ncclGroupStart");
        check(api().send(in, kCount, ncclFloat32, 0, comm_, stream()), "ncclSend");
        check(api().recv(out, kCount, ncclFloat32, 0, comm_, stream()), "ncclRecv");
        return api().group_end();
      });
    });
    step("ncclCommFinalize and ncclCommDestroy", [&] {
      check(api().finalize(comm_), "ncclCommFinalize");
      settle();
      check(api().destroy(comm_), "ncclCommDestroy");
    });
    step("ncclCommAbort in a group, of two communicators", [&] {
      open();
      const ncclComm_t first = comm_;
      open();
      check(api().group_start(), "ncclGroupStart");
      check(api().abort(first), "ncclCommAbort");
      check(api().abort(comm_), "ncclCommAbort");
      check(api().group_end(), "ncclGroupEnd");
    });
    return failed_;
  }

 private:
  static constexpr size_t kCount = 1000;

  template <typename Work>
  void step(const std::string& name, Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    std::string said;
    try {
      work();
    } catch (const std::exception& error) {
      said = error.what();
    }
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    std::printf("%s: %s, %.1f ms%s%s\n", said.empty() ? "passed" : "FAILED", name.c_str(), ms,
                said.empty() ? "" : ": ", said.c_str());
    std::fflush(stdout);
    failed_ += !said.empty();
  }

  cudaStream_t stream() { return static_cast<cudaStream_t>(device_->stream().native()); }

  // Waits until the communicator's last call has ended: calls do not block (config.blocking).
  void settle() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      check(api().get_async_error(comm_, &state), "ncclCommGetAsyncError");
      if (std::chrono::steady_clock::now() > end) fail(Code::timeout, "still in progress after 20 s");
      std::this_thread::yield();
    }
    check(state, "the communicator");
  }

  void open() {
    ncclUniqueId id;
    check(api().get_unique_id(&id), "ncclGetUniqueId");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(api().init_rank(&comm_, 1, id, 0, &config), "ncclCommInitRankConfig");
    settle();
  }

  void sums(ncclDataType_t type, DType dtype, const char* name) {
    step(std::string("ncclAllReduce of ") + name, [&] {
      moves([&](auto in,
                auto out) { return api().all_reduce(in, out, kCount, type, ncclSum, comm_, stream()); },
            dtype);
    });
  }

  // With one rank every operation is a copy.
  template <typename Call>
  void moves(Call&& call, DType dtype = DType::f32) {
    const auto count = static_cast<int64_t>(kCount);
    const Tensor in = Tensor::allocate(device_->allocator(), dtype, {count}),
                 out = Tensor::allocate(device_->allocator(), dtype, {count});
    test::HostMemory memory(in);
    for (size_t i = 0; i < in.bytes(); ++i)
      memory.data<unsigned char>()[i] = static_cast<unsigned char>(i % 61);
    memory.write();
    device_->zero(out.raw(), out.bytes(), device_->stream());
    device_->stream().submit();
    check(call(in.raw(), out.raw()), "the call");
    settle();
    device_->stream().synchronize();
    const test::HostMemory got(out);
    for (size_t i = 0; i < out.bytes(); ++i)
      if (got.data<unsigned char>()[i] != i % 61) fail(Code::internal, "byte ", i, " of the result is wrong");
  }

  std::shared_ptr<Device> device_;
  ncclComm_t comm_ = nullptr;
  int failed_ = 0;
};

}  // namespace
}  // namespace gangway

int main() {
  try {
    return gangway::Once().run() == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
}
