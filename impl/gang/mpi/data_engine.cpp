#include "gang/mpi/data_engine.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <numeric>

#include "gang/local/local_data.h"
#include "gang/mpi/mpi_work.h"
#include "gang/mpi/runtime.h"

namespace gangway::mpi {
namespace {

constexpr int kChildTag = kChannels;  // differs from the tags of all channels

// The reduction of bytes for MPI. MPI's own is not used, because MPICH 4.0 compares them as signed bytes, and
// Open MPI 4.1 sums 28 bytes over four ranks wrongly.
template <Reduce kReduce>
void reduce_u8(void* in, void* out, int* count, MPI_Datatype*) {
  const uint8_t* const a = static_cast<const uint8_t*>(in);
  uint8_t* const b = static_cast<uint8_t*>(out);
  for (int i = 0; i < *count; ++i) {
    if (kReduce == Reduce::sum) b[i] = static_cast<uint8_t>(a[i] + b[i]);
    if (kReduce == Reduce::product) b[i] = static_cast<uint8_t>(a[i] * b[i]);
    if (kReduce == Reduce::min) b[i] = std::min(a[i], b[i]);
    if (kReduce == Reduce::max) b[i] = std::max(a[i], b[i]);
  }
}

MPI_Op made(MPI_User_function* function) {
  MPI_Op op;
  check(MPI_Op_create(function, 1, &op), "MPI_Op_create");
  return op;
}

template <Reduce kReduce>
MPI_Op op_for(const Collective& c, MPI_Op usual) {
  if (item_bytes(c.dtype) != 1) return usual;
  static const MPI_Op own = made(reduce_u8<kReduce>);
  return own;
}

MPI_Op op_of(const Collective& c) {
  switch (c.reduce) {
    case Reduce::sum: return op_for<Reduce::sum>(c, MPI_SUM);
    case Reduce::product: return op_for<Reduce::product>(c, MPI_PROD);
    case Reduce::min: return op_for<Reduce::min>(c, MPI_MIN);
    case Reduce::max: return op_for<Reduce::max>(c, MPI_MAX);
    case Reduce::none:
    case Reduce::mean: break;
  }
  return MPI_OP_NULL;
}

// The MPI type of a record. A record that reduces nothing uses any type of the same size.
MPI_Datatype type_of(const Collective& c) {
  if (c.reduce != Reduce::none) {
    if (c.dtype == DType::f64) return MPI_DOUBLE;
    if (c.dtype == DType::f32) return MPI_FLOAT;
    if (c.dtype == DType::i64) return MPI_INT64_T;
    if (c.dtype == DType::i32) return MPI_INT32_T;
    return MPI_UINT8_T;  // u8, and bool for min and max
  }
  switch (item_bytes(c.dtype)) {
    case 16: return MPI_C_DOUBLE_COMPLEX;
    case 8: return MPI_UINT64_T;
    case 4: return MPI_UINT32_T;
    case 2: return MPI_UINT16_T;
    default: return MPI_BYTE;
  }
}

// MPI's counts and offsets are of type int. Throws NOT_SUPPORTED for a larger number.
int number(const Collective& c, size_t elements) {
  if (elements > INT_MAX)
    fail(Code::not_supported, "gang.", name(c.op), ": ", elements, " elements, but MPI counts to ", INT_MAX,
         "; split the call");
  return static_cast<int>(elements);
}

// The count of each rank, and the offset at which its part begins.
struct Parts {
  const int *counts, *offsets;
};
Parts parts(MpiWork& to, const Collective& c, const size_t* counts, int size) {
  std::vector<int> numbers, offsets;
  size_t sum = 0;
  for (int r = 0; r < size; ++r) {
    numbers.push_back(number(c, counts[r]));
    offsets.push_back(number(c, sum));
    sum += counts[r];
  }
  number(c, sum);
  const int* const kept = to.keep(std::move(numbers));
  return {kept, to.keep(std::move(offsets))};
}

// Starts one record on its communicator.
struct StartRecord {
  MpiWork& to;
  const Collective& c;
  MPI_Comm comm;
  int rank, size, tag;
  unsigned& splits;  // calls of the channel that were split

  void operator()() const {
    switch (c.op) {
      case CollectiveOp::barrier: return check(MPI_Ibarrier(comm, to.next()), "MPI_Ibarrier");
      case CollectiveOp::all_reduce:
        if (SplitAllReduce::suits(c, size)) return split();
        return check(MPI_Iallreduce(c.in == c.out ? MPI_IN_PLACE : c.in, c.out, count(), type(), op_of(c),
                                    comm, to.next()),
                     "MPI_Iallreduce");
      case CollectiveOp::reduce:
        return check(
            MPI_Ireduce(is_root() && c.in == c.out ? MPI_IN_PLACE : c.in, is_root() ? c.out : nullptr,
                        count(), type(), op_of(c), c.peer, comm, to.next()),
            "MPI_Ireduce");
      case CollectiveOp::reduce_scatter: return reduce_scatter();
      case CollectiveOp::broadcast:
        if (is_root() && c.in != c.out && c.count != 0) std::memmove(c.out, c.in, c.count * item());
        return check(MPI_Ibcast(c.out, count(), type(), c.peer, comm, to.next()), "MPI_Ibcast");
      case CollectiveOp::all_gather: return all_gather();
      case CollectiveOp::gather: return gather();
      case CollectiveOp::scatter: return scatter();
      case CollectiveOp::all_to_all: return all_to_all();
      case CollectiveOp::send:
        return check(MPI_Isend(c.in, count(), type(), c.peer, tag, comm, to.next()), "MPI_Isend");
      case CollectiveOp::recv:
        return check(MPI_Irecv(c.out, count(), type(), c.peer, tag, comm, to.next()), "MPI_Irecv");
    }
  }

 private:
  bool is_root() const { return c.peer == rank; }
  int count() const { return number(c, c.count); }
  MPI_Datatype type() const { return type_of(c); }
  size_t item() const { return item_bytes(c.dtype); }
  size_t own_count() const { return c.counts == nullptr ? c.count : c.counts[rank]; }
  size_t own_offset() const {
    if (c.counts == nullptr) return c.count * static_cast<size_t>(rank) * item();
    return std::accumulate(c.counts, c.counts + rank, size_t{0}) * item();
  }
  static const char* at(const void* base, size_t bytes) { return static_cast<const char*>(base) + bytes; }

  // Each call has two tags of its own. MPI has at least 32767, and no more calls are in flight.
  void split() const {
    number(c, c.count);
    const int first_tag = static_cast<int>(splits++ % 8192) * 2;
    to.add(std::make_unique<SplitAllReduce>(c, type(), op_of(c), comm, first_tag));
  }

  void reduce_scatter() const {
    // MPI's in-place form writes the result to another address than ours, so the result is copied when the
    // collective has ended.
    const bool in_place = c.out == at(c.in, own_offset());
    CopyBack copy{std::vector<char>(in_place ? own_count() * item() + 1 : 0), own_count() * item(), c.out};
    void* const out = in_place ? copy.from.data() : c.out;
    if (c.counts == nullptr) {
      check(MPI_Ireduce_scatter_block(c.in, out, count(), type(), op_of(c), comm, to.next()),
            "MPI_Ireduce_scatter_block");
    } else {
      check(MPI_Ireduce_scatter(c.in, out, parts(to, c, c.counts, size).counts, type(), op_of(c), comm,
                                to.next()),
            "MPI_Ireduce_scatter");
    }
    if (in_place) to.copy_when_done(std::move(copy));
  }

  void all_gather() const {
    const bool in_place = c.in == at(c.out, own_offset());
    const void* const in = in_place ? MPI_IN_PLACE : c.in;
    if (c.counts == nullptr)
      return check(MPI_Iallgather(in, count(), type(), c.out, count(), type(), comm, to.next()),
                   "MPI_Iallgather");
    const Parts p = parts(to, c, c.counts, size);
    check(MPI_Iallgatherv(in, p.counts[rank], type(), c.out, p.counts, p.offsets, type(), comm, to.next()),
          "MPI_Iallgatherv");
  }

  void gather() const {
    const bool in_place = is_root() && c.in == at(c.out, own_offset());
    const void* const in = in_place ? MPI_IN_PLACE : c.in;
    void* const out = is_root() ? c.out : nullptr;
    if (c.counts == nullptr)
      return check(MPI_Igather(in, count(), type(), out, count(), type(), c.peer, comm, to.next()),
                   "MPI_Igather");
    const Parts p = parts(to, c, c.counts, size);
    check(MPI_Igatherv(in, p.counts[rank], type(), out, p.counts, p.offsets, type(), c.peer, comm, to.next()),
          "MPI_Igatherv");
  }

  void scatter() const {
    const bool in_place = is_root() && c.out == at(c.in, own_offset());
    void* const out = in_place ? MPI_IN_PLACE : c.out;
    const void* const in = is_root() ? c.in : nullptr;
    if (c.counts == nullptr)
      return check(MPI_Iscatter(in, count(), type(), out, count(), type(), c.peer, comm, to.next()),
                   "MPI_Iscatter");
    const Parts p = parts(to, c, c.counts, size);
    check(
        MPI_Iscatterv(in, p.counts, p.offsets, type(), out, p.counts[rank], type(), c.peer, comm, to.next()),
        "MPI_Iscatterv");
  }

  void all_to_all() const {
    if (c.counts == nullptr)
      return check(MPI_Ialltoall(c.in, count(), type(), c.out, count(), type(), comm, to.next()),
                   "MPI_Ialltoall");
    const Parts sent = parts(to, c, c.counts, size), got = parts(to, c, c.counts + size, size);
    check(MPI_Ialltoallv(c.in, sent.counts, sent.offsets, type(), c.out, got.counts, got.offsets, type(),
                         comm, to.next()),
          "MPI_Ialltoallv");
  }
};

class DataEngine final : public Engine {
 public:
  DataEngine(MPI_Comm comm, bool root)
      : comm_(comm), root_(root), broken_(std::make_shared<std::atomic<bool>>(false)) {
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    channels_.fill(MPI_COMM_NULL);
    if (root_) began_root();
  }
  ~DataEngine() override {
    if (root_ && !in_order_) ended_root(/*in_order=*/false);
  }

  const char* name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  EngineFacts facts() const override {
    EngineFacts facts;
    facts.folds_in_rank_order = false;
    facts.takes_accumulate = facts.takes_mean = facts.takes_narrow_reductions = false;
    facts.runs_in_order = facts.detects_failures = facts.aborts_in_flight = false;
    facts.moves_when_polled = true;
    return facts;
  }
  void* native_handle() const override { return const_cast<MPI_Comm*>(&comm_); }

  void open(Channel channel) override {
    MPI_Comm& comm = channels_[static_cast<size_t>(channel)];
    if (comm == MPI_COMM_NULL) comm = copy_of(comm_, static_cast<int>(channel));
  }

  WorkPtr run(Channel channel, std::span<const Collective> span, Stream&) override {
    auto work = std::make_shared<MpiWork>(broken_);
    for (const Collective& c : span) {
      const bool pair = is_pair(c);
      const MPI_Comm comm = pair ? comm_ : channels_[static_cast<size_t>(channel)];
      StartRecord{
          *work, c, comm, rank_, size_, static_cast<int>(channel), splits_[static_cast<size_t>(channel)]}();
      count(c);
    }
    return work;
  }
  WorkPtr run_now(Channel channel, std::span<const Collective> span, Stream& stream) override {
    WorkPtr work = run(channel, span, stream);
    for (int i = 0; i < kLooks; ++i)
      if (work->poll()) {
        if (const auto error = work->error()) throw *error;
        return nullptr;
      }
    return work;
  }

  std::shared_ptr<Engine> create(std::span<const int> ranks, const std::string&) override {
    if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) return nullptr;
    return std::make_shared<DataEngine>(subset(comm_, ranks, kChildTag), false);
  }
  std::shared_ptr<Engine> shrink(std::vector<int>& survivors) override {
    return std::make_shared<DataEngine>(subset(comm_, survivors, kChildTag), false);
  }
  void abort(const Error& error) noexcept override {
    const std::lock_guard lock(mutex_);
    keep_first(error_, error);
    broken_->store(true, std::memory_order_release);
  }
  std::optional<Error> error() const override {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  // MPI_Comm_free is collective. All ranks are here, because the control engine is shut down first.
  void shutdown(Deadline) override {
    for (MPI_Comm& comm : channels_)
      if (comm != MPI_COMM_NULL) check(MPI_Comm_free(&comm), "MPI_Comm_free");
    check(MPI_Comm_free(&comm_), "MPI_Comm_free");
    // A program may end without releasing a gang that it has shut down, so the root ends here.
    if (root_ && !in_order_) ended_root(/*in_order=*/true);
    in_order_ = true;
  }
  Traffic traffic() const override {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }
  // The dual engine (dual_engine.h) keeps the flight record.
  std::vector<FlightEntry> flight_record() const override { return {}; }

 private:
  static constexpr int kLooks = 2000;

  void count(const Collective& c) {
    const std::lock_guard lock(mutex_);
    ++traffic_.calls;
    traffic_.bytes_moved += received_bytes(c, rank_, size_);
  }

  MPI_Comm comm_;  // for sends and receives, for children, and for native_handle
  const bool root_;
  int rank_ = 0, size_ = 0;
  std::array<MPI_Comm, kChannels> channels_;
  std::array<unsigned, kChannels> splits_{};
  const std::shared_ptr<std::atomic<bool>> broken_;
  bool in_order_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  Traffic traffic_;
};

}  // namespace

std::shared_ptr<Engine> make_data_engine(const EngineOptions&) {
  return std::make_shared<DataEngine>(copy_of(MPI_COMM_WORLD, 0), true);
}

}  // namespace gangway::mpi
