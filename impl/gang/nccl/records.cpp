#include "gang/nccl/records.h"

namespace gangway::nccl {
namespace {

ncclRedOp_t op_of(Reduce reduce) {
  switch (reduce) {
    case Reduce::product: return ncclProd;
    case Reduce::min: return ncclMin;
    case Reduce::max: return ncclMax;
    case Reduce::mean: return ncclAvg;
    case Reduce::sum:
    case Reduce::none: break;
  }
  return ncclSum;
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    default: return ncclUint8;  // u8; bool, which is reduced by min and max only
  }
}

struct Call {
  const Place& to;
  const Collective& c;

  void operator()(void* dummy) const {
    const Api& nccl = api();
    switch (c.op) {
      case CollectiveOp::barrier:
        return check(nccl.all_reduce(dummy, dummy, 1, ncclUint8, ncclMax, to.comm, to.stream),
                     "ncclAllReduce");
      case CollectiveOp::all_reduce:
        return check(
            nccl.all_reduce(c.in, c.out, c.count, type_of(c.dtype), op_of(c.reduce), to.comm, to.stream),
            "ncclAllReduce");
      case CollectiveOp::reduce:
        return check(
            nccl.reduce(c.in, c.out, c.count, type_of(c.dtype), op_of(c.reduce), c.peer, to.comm, to.stream),
            "ncclReduce");
      case CollectiveOp::reduce_scatter:
        return check(
            nccl.reduce_scatter(c.in, c.out, c.count, type_of(c.dtype), op_of(c.reduce), to.comm, to.stream),
            "ncclReduceScatter");
      case CollectiveOp::broadcast:
        return check(nccl.broadcast(c.in, c.out, bytes(c.count), ncclUint8, c.peer, to.comm, to.stream),
                     "ncclBroadcast");
      case CollectiveOp::all_gather:
        return check(nccl.all_gather(c.in, c.out, bytes(c.count), ncclUint8, to.comm, to.stream),
                     "ncclAllGather");
      case CollectiveOp::gather: return gather();
      case CollectiveOp::scatter: return scatter();
      case CollectiveOp::all_to_all: return all_to_all();
      case CollectiveOp::send: return send(c.in, c.count, c.peer);
      case CollectiveOp::recv: return receive(c.out, c.count, c.peer);
    }
  }

 private:
  size_t bytes(size_t count) const { return count * item_bytes(c.dtype); }
  void send(const void* in, size_t count, int peer) const {
    if (count != 0) check(api().send(in, bytes(count), ncclUint8, peer, to.comm, to.stream), "ncclSend");
  }
  void receive(void* out, size_t count, int peer) const {
    if (count != 0) check(api().recv(out, bytes(count), ncclUint8, peer, to.comm, to.stream), "ncclRecv");
  }
  const char* in_at(size_t count) const { return static_cast<const char*>(c.in) + bytes(count); }
  char* out_at(size_t count) const { return static_cast<char*>(c.out) + bytes(count); }

  void gather() const {
    send(c.in, c.count, c.peer);
    if (to.rank != c.peer) return;
    for (int r = 0; r < to.size; ++r) receive(out_at(static_cast<size_t>(r) * c.count), c.count, r);
  }
  void scatter() const {
    if (to.rank == c.peer)
      for (int r = 0; r < to.size; ++r) send(in_at(static_cast<size_t>(r) * c.count), c.count, r);
    receive(c.out, c.count, c.peer);
  }
  void all_to_all() const {
    for (int r = 0; r < to.size; ++r) {
      send(in_at(static_cast<size_t>(r) * c.count), c.count, r);
      receive(out_at(static_cast<size_t>(r) * c.count), c.count, r);
    }
  }
};

}  // namespace

void launch(const Place& place, const Collective& c, void* dummy) { Call{place, c}(dummy); }

}  // namespace gangway::nccl
