#include "device/cuda/cuda_device.h"

#include <charconv>
#include <map>
#include <mutex>
#include <utility>

#include "base/config.h"
#include "device/cuda/architectures.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/memory.h"

namespace gangway::cuda {

class CudaEvent final : public Event {
 public:
  CudaEvent(int device, std::shared_ptr<Watches> watches) : device_(device), watches_(std::move(watches)) {
    const OnDevice on(device_);
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  void record(Stream& stream) override {
    const OnDevice on(device_);
    check(cudaEventRecord(event_, cuda::native(stream)), "cudaEventRecord");
  }
  bool done() override {
    const OnDevice on(device_);
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(state, "cudaEventQuery");
    return true;
  }
  void wait() override {
    if (!watches_->empty()) watches_->wait([&] { return done(); });
    const OnDevice on(device_);
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }
  cudaEvent_t event() const { return event_; }

 private:
  const int device_;
  const std::shared_ptr<Watches> watches_;  // the event may outlive its device
  cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public Device, public std::enable_shared_from_this<CudaDevice> {
 public:
  explicit CudaDevice(int index)
      : index_(index),
        graphs_(read_config().cuda_graphs),
        memory_(index, *watches_),
        stream_(owner(), make_native(0), /*owned=*/true) {}
  ~CudaDevice() override { wrapped_.clear(); }
  DeviceKind kind() const override { return DeviceKind::cuda; }
  int index() const override { return index_; }
  std::string name() const override { return "cuda:" + std::to_string(index_); }
  Stream& stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    int lowest = 0, highest = 0;
    const OnDevice on(index_);
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    return std::make_unique<CudaStream>(owner(), make_native(priority == StreamPriority::high ? highest : 0),
                                        true);
  }
  Stream& wrap_stream(void* native) override {
    refuse_per_thread(native);
    if (native == nullptr || native == stream_.handle()) return stream_;
    const std::lock_guard lock(mutex_);
    std::unique_ptr<CudaStream>& stream = wrapped_[native];
    if (stream == nullptr)
      stream = std::make_unique<CudaStream>(owner(), static_cast<cudaStream_t>(native), false);
    return *stream;
  }
  void order(void* native) override {
    refuse_per_thread(native);
    const CudaEvent point(index_, watches_);
    const OnDevice on(index_);
    streams_.order(native == nullptr ? stream_.handle() : static_cast<cudaStream_t>(native), point.event());
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(index_, watches_); }
  MemoryKind memory_kind() const override { return MemoryKind::device; }
  std::shared_ptr<Allocator> allocator() override;
  std::shared_ptr<Allocator> pinned_allocator() override;
  bool reaches(const void* data) const override {
    const OnDevice on(index_);
    cudaPointerAttributes found{};
    if (cudaPointerGetAttributes(&found, data) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    if (found.type == cudaMemoryTypeDevice) return found.device == index_;
    return found.type != cudaMemoryTypeUnregistered;
  }
  void copy(void* to, const void* from, size_t bytes, Stream& stream) override {
    const OnDevice on(index_);
    if (bytes > 0)
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda::native(stream)), "cudaMemcpyAsync");
  }
  void zero(void* to, size_t bytes, Stream& stream) override {
    const OnDevice on(index_);
    if (bytes > 0) check(cudaMemsetAsync(to, 0, bytes, cuda::native(stream)), "cudaMemsetAsync");
  }
  void submit() override { streams_.submit(); }
  StreamList& streams() { return streams_; }

  // This handle stands for another stream in each thread, while work is ordered by streams.
  static void refuse_per_thread(void* native) {
    if (native == cudaStreamPerThread)
      fail(Code::invalid_argument,
           "stream is cudaStreamPerThread, which is another stream in each thread; pass one that "
           "cudaStreamCreate made");
  }

  // If memory runs out, starts the queued operations of all streams and tries again, because these operations
  // may hold the last references to memory.
  template <typename Take>
  void* take(Take&& take) {
    try {
      return take(memory_);
    } catch (const Error& error) {
      if (error.code() != Code::out_of_memory) throw;
      streams_.submit();
      return take(memory_);
    }
  }
  Memory& memory() { return memory_; }
  Watches& watches() { return *watches_; }

 private:
  CudaStream::Owner owner() { return {*this, index_, memory_, streams_, *watches_, graphs_}; }
  cudaStream_t make_native(int priority) const {
    const OnDevice on(index_);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
    return stream;
  }

  const int index_;
  const bool graphs_;
  const std::shared_ptr<Watches> watches_ = std::make_shared<Watches>();
  Memory memory_;
  StreamList streams_;
  CudaStream stream_;
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<CudaStream>> wrapped_;
};

namespace {

class DeviceMemory final : public Allocator {
 public:
  explicit DeviceMemory(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }
  MemoryKind kind() const override { return MemoryKind::device; }
  Block allocate(size_t bytes) override {
    if (bytes == 0) return {};
    return {device_->take([&](Memory& memory) { return memory.allocate(bytes); }), bytes, 0};
  }
  void free(const Block& block) noexcept override {
    if (block.data != nullptr) device_->memory().free(block.data);
  }

 private:
  const std::shared_ptr<CudaDevice> device_;
};

class PinnedMemory final : public Allocator {
 public:
  explicit PinnedMemory(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  Device& device() override { return *device_; }
  MemoryKind kind() const override { return MemoryKind::pinned; }
  Block allocate(size_t bytes) override {
    if (bytes == 0) return {};
    return {device_->take([&](Memory& memory) { return memory.allocate_pinned(bytes); }), bytes, 0};
  }
  void free(const Block& block) noexcept override {
    if (block.data != nullptr) device_->memory().free_pinned(block.data, block.bytes);
  }

 private:
  const std::shared_ptr<CudaDevice> device_;
};

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// Throws with the found and the needed version if the driver cannot run this module.
void check_driver(const std::string& name) {
  int driver = 0, devices = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    fail(Code::not_supported, "device \"", name, "\": this machine has no NVIDIA driver");
  constexpr int kNeeded = CUDART_VERSION / 1000 * 1000;  // any driver of the same major version
  if (driver < kNeeded)
    fail(Code::not_supported, "device \"", name, "\": the driver is for CUDA ", version(driver),
         ", older than the ", version(kNeeded), " that this module needs");
  const cudaError_t error = cudaGetDeviceCount(&devices);
  cudaGetLastError();
  if (error != cudaSuccess)
    fail(Code::not_supported, "device \"", name, "\": no GPU can be used (", cudaGetErrorString(error), ")");
}

void check_index(const std::string& name, int index) {
  int devices = 0, major = 0, minor = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (index < 0 || index >= devices)
    fail(Code::invalid_argument, "device \"", name, "\": this machine has ", devices,
         " GPUs, numbered from 0");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index), "cudaDeviceGetAttribute");
  if (!has_kernels_for(10 * major + minor))
    fail(Code::not_supported, "device \"", name, "\": its architecture sm_", major, minor, " is not among ",
         kArchitectures);
}

int index_of(const std::string& name, const DeviceOptions& options) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return options.index;
  int index = -1;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + colon + 1, last, index);
  if (error != std::errc() || end != last || index < 0)
    fail(Code::invalid_argument, "device \"", name, "\" is no device: write cuda or cuda:NUMBER");
  return index;
}

}  // namespace

std::shared_ptr<Allocator> CudaDevice::allocator() {
  return std::make_shared<DeviceMemory>(shared_from_this());
}
std::shared_ptr<Allocator> CudaDevice::pinned_allocator() {
  return std::make_shared<PinnedMemory>(shared_from_this());
}

CudaStream& cuda_stream(Stream& stream) {
  auto* const mine = dynamic_cast<CudaStream*>(&stream);
  if (mine == nullptr) fail(Code::internal, "a stream of device ", stream.device().name(), " is not CUDA's");
  return *mine;
}
cudaStream_t native(Stream& stream) { return cuda_stream(stream).ready(); }
cudaEvent_t native(Event& event) { return dynamic_cast<CudaEvent&>(event).event(); }
Watches& watches(Device& device) { return dynamic_cast<CudaDevice&>(device).watches(); }
Memory& device_memory(Device& device) { return dynamic_cast<CudaDevice&>(device).memory(); }
bool is_captured(Stream& stream) { return cuda_stream(stream).is_captured(); }
void* workspace(Stream& stream, size_t bytes) { return cuda_stream(stream).workspace(bytes); }
void submit_quietly(Device& device) { dynamic_cast<CudaDevice&>(device).streams().submit_quietly(); }

std::string describe_devices() {
  int driver = 0, devices = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "  no NVIDIA driver\n";
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  cudaGetLastError();
  return text("  driver for CUDA ", version(driver), ", module of CUDA ", version(CUDART_VERSION), ", ",
              devices, " GPUs\n  operations that repeat are started ",
              read_config().cuda_graphs ? "as CUDA graphs (GANGWAY_CUDA_GRAPHS = 1)\n"
                                        : "one by one (GANGWAY_CUDA_GRAPHS = 0)\n");
}

std::shared_ptr<Device> make_cuda_device(const std::string& name, const DeviceOptions& options) {
  const int index = index_of(name, options);
  check_driver(name);
  check_index(name, index);
  return std::make_shared<CudaDevice>(index);
}

}  // namespace gangway::cuda
