// Collectives: each named function is a shorthand for running a gw_collective record.
#include <gangway/collectives.h>

#include <array>

#include "bytes.h"
#include "gang/agreement.h"
#include "gang_handle.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(CollectiveOp::recv) == GW_RECV &&
              static_cast<int>(CollectiveOp::reduce) == GW_REDUCE);
static_assert(static_cast<int>(Reduce::sum) == GW_SUM && static_cast<int>(Reduce::max) == GW_MAX);

namespace {

// Runs a call and returns its work to the caller. Allocates the handle before the call starts, so that a
// started call always has one.
template <typename Run>
void return_work(gw_gang* handle, gw_work** out_work, Run&& run) {
  auto work = std::make_unique<gw_work>(nullptr, handle->gang);
  work->work = run();
  *out_work = work.release();
}

// Runs the records; without out_work it waits for them, else it returns their work.
void start(gw_gang* handle, std::span<const Collective> records, void* stream, gw_work** out_work) {
  Gang& gang = gang_of(handle);
  Stream& ordered_on = EntryStream::of(gang.device(), stream);
  if (out_work == nullptr) {
    gang.run_now(Channel::user, records, &ordered_on);
    gang.owner()->works()->settle();
    return;
  }
  return_work(handle, out_work, [&] { return gang.run(Channel::user, records, &ordered_on); });
}

// Run one record, and wait or return its work. `call`: the name of the C function, for error messages.
gw_status plain(gw_gang* gang, const Collective& record, void* stream,
                const char* call = __builtin_FUNCTION()) {
  return guarded([&] { start(gang, std::span(&record, 1), stream, nullptr); }, call);
}

gw_status async(gw_gang* gang, const Collective& record, void* stream, gw_work** out_work,
                const char* call = __builtin_FUNCTION()) {
  return guarded(
      [&] {
        out(out_work, "out_work");
        start(gang, std::span(&record, 1), stream, out_work);
      },
      call);
}

Collective make(CollectiveOp op, const void* input, void* output, size_t count, gw_dtype dtype,
                gw_reduce reduce = GW_REDUCE_NONE, int32_t peer = -1) {
  Collective c;
  c.op = op;
  c.in = input;
  c.out = output;
  c.count = count;
  c.dtype = static_cast<DType>(dtype);  // the gang checks it
  // An unknown number becomes a value that the gang refuses.
  c.reduce = reduce >= GW_REDUCE_NONE && reduce <= GW_MAX ? static_cast<Reduce>(reduce) : Reduce{0xff};
  c.peer = peer;
  return c;
}

// Makes one broadcast from each rank, which run as one batch and write directly into the caller's buffers.
std::vector<Collective> gather_list(gw_gang* gang, const void* input, void* const* outputs, size_t count,
                                    gw_dtype dtype) {
  const int size = gang_of(gang).size();
  required(outputs, "outputs");
  std::vector<Collective> all;
  for (int r = 0; r < size; ++r)
    all.push_back(make(CollectiveOp::broadcast, input, outputs[r], count, dtype, GW_REDUCE_NONE, r));
  return all;
}

// Runs a collective on one value in host memory, in place. If it fails, the value is set to zero.
template <typename T>
void run_scalar(gw_gang* handle, T& scalar, T value, Collective record, gw_work** out_work) {
  scalar = value;
  record.in = record.out = &scalar;
  try {
    Gang& gang = gang_of(handle);
    if (out_work != nullptr)
      return return_work(handle, out_work, [&] { return gang.agreement().run(Channel::user, record); });
    gang.agreement().run_now(Channel::user, record);
    gang.owner()->works()->settle();
  } catch (...) {
    scalar = T{};
    throw;
  }
}

void start_flag(gw_gang* gang, int32_t flag, int32_t root, int32_t* out_flag, gw_work** out_work) {
  run_scalar<int32_t>(gang, out(out_flag, "out_flag"), flag != 0 ? 1 : 0,
                      make(CollectiveOp::broadcast, nullptr, nullptr, 1, GW_I32, GW_REDUCE_NONE, root),
                      out_work);
}

void start_sum(gw_gang* gang, double value, double* out_sum, gw_work** out_work) {
  run_scalar(gang, out(out_sum, "out_sum"), value,
             make(CollectiveOp::all_reduce, nullptr, nullptr, 1, GW_F64, GW_SUM), out_work);
}

std::string bytes_of(const void* data, size_t size) {
  const char* const first = &required(static_cast<const char*>(data), "data");
  if (size > PTRDIFF_MAX)
    fail(Code::invalid_argument, "size is ", size, " bytes, more than an address space holds");
  return std::string(first, size);
}

Collective from_record(const gw_collective& r) {
  if (r.op < GW_BARRIER || r.op > GW_RECV)
    fail(Code::invalid_argument, "record.op is ", r.op, ", not 0 to ", GW_RECV);
  Collective c = make(static_cast<CollectiveOp>(r.op), r.input, r.output, r.count, r.dtype, r.reduce, r.peer);
  c.counts = r.counts;
  c.accumulate = r.accumulate != 0;
  return c;
}

}  // namespace

void gw_collective_init(gw_collective* record, size_t size) {
  gw_collective d{};
  d.op = GW_OP_INVALID;
  d.peer = -1;
  init_struct(record, size, d);
}

gw_status gw_gang_run(gw_gang* gang, const gw_collective* record, void* stream, gw_work** out_work) {
  return gw_gang_run_batch(gang, record, 1, stream, out_work);
}

gw_status gw_gang_run_batch(gw_gang* gang, const gw_collective* records, size_t record_count, void* stream,
                            gw_work** out_work) {
  return guarded([&] {
    if (out_work != nullptr) *out_work = nullptr;
    if (record_count > 0) required(records, "records");
    constexpr size_t kFew = 4;  // a launch of so many records needs no memory
    std::array<Collective, kFew> few;
    std::vector<Collective> many;
    for (size_t i = 0; i < record_count; ++i) {
      const Collective record = from_record(read_element(records, i, gw_collective_init, "records"));
      if (record_count <= kFew)
        few[i] = record;
      else
        many.push_back(record);
    }
    const bool is_few = record_count <= kFew;
    start(gang, is_few ? std::span<const Collective>(few).first(record_count) : many, stream, out_work);
  });
}

gw_status gw_gang_barrier(gw_gang* gang, void* stream) {
  return plain(gang, make(CollectiveOp::barrier, nullptr, nullptr, 0, GW_U8), stream);
}
gw_status gw_gang_barrier_async(gw_gang* gang, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::barrier, nullptr, nullptr, 0, GW_U8), stream, out_work);
}

gw_status gw_gang_all_reduce(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                             gw_reduce reduce, void* stream) {
  return plain(gang, make(CollectiveOp::all_reduce, input, output, count, dtype, reduce), stream);
}
gw_status gw_gang_all_reduce_async(gw_gang* gang, const void* input, void* output, size_t count,
                                   gw_dtype dtype, gw_reduce reduce, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::all_reduce, input, output, count, dtype, reduce), stream, out_work);
}

gw_status gw_gang_all_gather(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                             void* stream) {
  return plain(gang, make(CollectiveOp::all_gather, input, output, count, dtype), stream);
}
gw_status gw_gang_all_gather_async(gw_gang* gang, const void* input, void* output, size_t count,
                                   gw_dtype dtype, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::all_gather, input, output, count, dtype), stream, out_work);
}

gw_status gw_gang_all_gather_list(gw_gang* gang, const void* input, void* const* outputs, size_t count,
                                  gw_dtype dtype, void* stream) {
  return guarded([&] { start(gang, gather_list(gang, input, outputs, count, dtype), stream, nullptr); });
}
gw_status gw_gang_all_gather_list_async(gw_gang* gang, const void* input, void* const* outputs, size_t count,
                                        gw_dtype dtype, void* stream, gw_work** out_work) {
  return guarded([&] {
    out(out_work, "out_work");
    start(gang, gather_list(gang, input, outputs, count, dtype), stream, out_work);
  });
}

gw_status gw_gang_reduce_scatter(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                                 gw_reduce reduce, void* stream) {
  return plain(gang, make(CollectiveOp::reduce_scatter, input, output, count, dtype, reduce), stream);
}
gw_status gw_gang_reduce_scatter_async(gw_gang* gang, const void* input, void* output, size_t count,
                                       gw_dtype dtype, gw_reduce reduce, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::reduce_scatter, input, output, count, dtype, reduce), stream,
               out_work);
}

gw_status gw_gang_broadcast(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                            int32_t root, void* stream) {
  return plain(gang, make(CollectiveOp::broadcast, input, output, count, dtype, GW_REDUCE_NONE, root),
               stream);
}
gw_status gw_gang_broadcast_async(gw_gang* gang, const void* input, void* output, size_t count,
                                  gw_dtype dtype, int32_t root, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::broadcast, input, output, count, dtype, GW_REDUCE_NONE, root), stream,
               out_work);
}

gw_status gw_gang_reduce(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                         gw_reduce reduce, int32_t root, void* stream) {
  return plain(gang, make(CollectiveOp::reduce, input, output, count, dtype, reduce, root), stream);
}
gw_status gw_gang_reduce_async(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                               gw_reduce reduce, int32_t root, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::reduce, input, output, count, dtype, reduce, root), stream, out_work);
}

gw_status gw_gang_gather(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                         int32_t root, void* stream) {
  return plain(gang, make(CollectiveOp::gather, input, output, count, dtype, GW_REDUCE_NONE, root), stream);
}
gw_status gw_gang_gather_async(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                               int32_t root, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::gather, input, output, count, dtype, GW_REDUCE_NONE, root), stream,
               out_work);
}

gw_status gw_gang_scatter(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                          int32_t root, void* stream) {
  return plain(gang, make(CollectiveOp::scatter, input, output, count, dtype, GW_REDUCE_NONE, root), stream);
}
gw_status gw_gang_scatter_async(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                                int32_t root, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::scatter, input, output, count, dtype, GW_REDUCE_NONE, root), stream,
               out_work);
}

gw_status gw_gang_all_to_all(gw_gang* gang, const void* input, void* output, size_t count, gw_dtype dtype,
                             void* stream) {
  return plain(gang, make(CollectiveOp::all_to_all, input, output, count, dtype), stream);
}
gw_status gw_gang_all_to_all_async(gw_gang* gang, const void* input, void* output, size_t count,
                                   gw_dtype dtype, void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::all_to_all, input, output, count, dtype), stream, out_work);
}

gw_status gw_gang_send(gw_gang* gang, const void* input, size_t count, gw_dtype dtype, int32_t peer,
                       void* stream) {
  return plain(gang, make(CollectiveOp::send, input, nullptr, count, dtype, GW_REDUCE_NONE, peer), stream);
}
gw_status gw_gang_send_async(gw_gang* gang, const void* input, size_t count, gw_dtype dtype, int32_t peer,
                             void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::send, input, nullptr, count, dtype, GW_REDUCE_NONE, peer), stream,
               out_work);
}
gw_status gw_gang_recv(gw_gang* gang, void* output, size_t count, gw_dtype dtype, int32_t peer,
                       void* stream) {
  return plain(gang, make(CollectiveOp::recv, nullptr, output, count, dtype, GW_REDUCE_NONE, peer), stream);
}
gw_status gw_gang_recv_async(gw_gang* gang, void* output, size_t count, gw_dtype dtype, int32_t peer,
                             void* stream, gw_work** out_work) {
  return async(gang, make(CollectiveOp::recv, nullptr, output, count, dtype, GW_REDUCE_NONE, peer), stream,
               out_work);
}

gw_status gw_gang_probe(gw_gang* gang, int32_t peer, int32_t* out_ready, size_t* out_count,
                        gw_dtype* out_dtype) {
  return guarded([&] {
    int32_t& ready = out(out_ready, "out_ready");
    size_t& count = out(out_count, "out_count");
    gw_dtype& dtype = out(out_dtype, "out_dtype");
    const std::optional<Message> message = gang_of(gang).probe(Channel::user, peer);
    if (!message) return;
    ready = 1;
    count = message->count;
    dtype = static_cast<gw_dtype>(message->dtype);
  });
}

gw_status gw_gang_broadcast_bytes(gw_gang* gang, const void* data, size_t size, int32_t root,
                                  gw_bytes** out_bytes) {
  return guarded([&] {
    gw_bytes*& result = out(out_bytes, "out_bytes");
    Gang& g = gang_of(gang);
    std::string value;
    if (g.rank() == root && size > 0) value = bytes_of(data, size);
    result = new gw_bytes(g.agreement().broadcast_bytes(Channel::user, value, root));
  });
}

gw_status gw_gang_all_gather_bytes(gw_gang* gang, const void* data, size_t size, size_t out_sizes[],
                                   gw_bytes** out_bytes) {
  return guarded([&] {
    gw_bytes*& result = out(out_bytes, "out_bytes");
    Gang& g = gang_of(gang);
    required(out_sizes, "out_sizes");
    std::string mine;
    if (size > 0) mine = bytes_of(data, size);
    auto bytes = std::make_unique<gw_bytes>();
    const std::vector<std::string> all = g.agreement().all_gather_bytes(Channel::user, mine);
    for (size_t r = 0; r < all.size(); ++r) {
      out_sizes[r] = all[r].size();
      bytes->data += all[r];
    }
    result = bytes.release();
  });
}

gw_status gw_gang_broadcast_flag(gw_gang* gang, int32_t flag, int32_t root, int32_t* out_flag) {
  return guarded([&] { start_flag(gang, flag, root, out_flag, nullptr); });
}
gw_status gw_gang_broadcast_flag_async(gw_gang* gang, int32_t flag, int32_t root, int32_t* out_flag,
                                       gw_work** out_work) {
  return guarded([&] {
    out(out_work, "out_work");
    start_flag(gang, flag, root, out_flag, out_work);
  });
}

gw_status gw_gang_all_sum(gw_gang* gang, double value, double* out_sum) {
  return guarded([&] { start_sum(gang, value, out_sum, nullptr); });
}
gw_status gw_gang_all_sum_async(gw_gang* gang, double value, double* out_sum, gw_work** out_work) {
  return guarded([&] {
    out(out_work, "out_work");
    start_sum(gang, value, out_sum, out_work);
  });
}
