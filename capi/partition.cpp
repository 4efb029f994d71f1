#include <gangway/partition.h>

#include <mutex>
#include <tuple>

#include "gang_handle.h"
#include "parallel/collective_call.h"
#include "parallel/movement/movement.h"
#include "parallel/stream_order.h"
#include "tensor_handle.h"

using namespace gangway;
using namespace gangway::capi;

static_assert(static_cast<int>(Movement::repartition) == GW_MOVEMENT_REPARTITION &&
              static_cast<int>(Movement::broadcast) == GW_MOVEMENT_BROADCAST);

struct gw_partition : Handle {
  explicit gw_partition(Partition p) : partition(std::move(p)) {}
  const Partition partition;
};

namespace {

// A data movement as a module, with the context that its calls need.
struct Mover {
  Mover(ModulePtr m, GangPtr g)
      : gang(std::move(g)),
        module(std::move(m)),
        ops(make_ops(gang->owner()->device_ptr())),
        temporaries(gang->device().allocator()),
        frame(gang->device().allocator()),
        order(gang->device().stream()) {}

  // Reads the arguments of a call. If this rank refuses them, it takes part in the module's check phase with
  // its error.
  std::pair<Tensor, Stream*> read(const gw_view* view, const char* name, void* stream,
                                  gw_tensor** out_tensor) {
    std::pair<Tensor, Stream*> arguments;
    CollectiveCall({&gang, 1}, module->kind()).read([&] {
      out(out_tensor, "out_tensor");
      Stream& ordered_on = EntryStream::of(gang->device(), stream);
      arguments = {input_of(required(view, name), ordered_on, name), &ordered_on};
    });
    order.enter(*arguments.second);
    return arguments;
  }

  Context context(Stream& stream) { return {.ops = *ops, .stream = stream, .temporaries = temporaries}; }

  // Returns a copy of a result, because the memory of the frame is reused.
  gw_tensor* return_tensor(const Tensor& result, Stream& stream) {
    const Tensor copy = Tensor::allocate(gang->device().allocator(), result.dtype(), result.shape());
    if (copy.count() != 0) ops->cast(result, copy, stream);
    return new gw_tensor(copy, gang);
  }

  const GangPtr gang;
  const ModulePtr module;
  const std::unique_ptr<Ops> ops;
  Stack temporaries;
  Frame frame;
  StreamOrder order;
  std::mutex mutex;  // held by a forward or a backward, since duplicates may be used by several threads
};

}  // namespace

struct gw_movement : Handle {
  explicit gw_movement(std::shared_ptr<Mover> m) : mover(std::move(m)) {}
  const std::shared_ptr<Mover> mover;  // shared with its duplicates
  UserStates kept;                     // what the last forward of this handle left for its backward
};

namespace {

// Lends what a forward left to the frame of the movement, for one backward.
class Lent {
 public:
  explicit Lent(gw_movement& movement) : movement_(movement) {
    movement.kept.move_to(frame_states(), module());
  }
  ~Lent() { frame_states().move_to(movement_.kept, module()); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  UserStates& frame_states() const { return movement_.mover->frame.user_states(); }
  const Module& module() const { return *movement_.mover->module; }

  gw_movement& movement_;
};

const Partition& partition_of(const gw_partition* partition, const char* name) {
  return required(partition, name).partition;
}

std::span<const int32_t> list(const int32_t* numbers, size_t count, const char* name) {
  if (count != 0) required(numbers, name);
  return {numbers, count};
}

MovementOptions movement_options(const gw_movement_options& o) {
  MovementOptions m;
  const auto dims = [](const int32_t* numbers, size_t count, const char* name) {
    const std::span<const int32_t> given = list(numbers, count, name);
    std::optional<std::vector<int>> all;
    if (numbers != nullptr) all.emplace(given.begin(), given.end());
    return all;
  };
  m.axes = dims(o.axes, o.axis_count, "options.axes");
  m.axes_keep = dims(o.axes_keep, o.keep_count, "options.axes_keep");
  m.backward_scale = finite(o.backward_scale, "options.backward_scale");
  m.preserve_batch = o.preserve_batch != 0;
  m.transpose_source = o.transpose_source != 0;
  m.transpose_target = o.transpose_target != 0;
  return m;
}

// Runs a function that makes a new partition.
template <typename Make>
gw_status derive(gw_partition** out_partition, Make&& make, const char* call = __builtin_FUNCTION()) {
  return guarded(
      [&] {
        gw_partition*& result = out(out_partition, "out_partition");
        result = new gw_partition(make());
      },
      call);
}

}  // namespace

gw_status gw_partition_create(gw_gang* gang, gw_partition** out_partition) {
  return derive(out_partition, [&] { return Partition(required(gang, "gang").gang); });
}

gw_status gw_partition_inclusive(const gw_partition* partition, const int32_t* workers, size_t worker_count,
                                 gw_partition** out_partition) {
  return derive(out_partition, [&] {
    return partition_of(partition, "partition")
        .inclusive(list(&required(workers, "workers"), worker_count, "workers"));
  });
}

gw_status gw_partition_union(const gw_partition* partition, const gw_partition* other,
                             gw_partition** out_partition) {
  return derive(out_partition,
                [&] { return partition_of(partition, "partition").unite(partition_of(other, "other")); });
}

gw_status gw_partition_cartesian(const gw_partition* partition, const int32_t* shape, size_t dim_count,
                                 gw_partition** out_partition) {
  return derive(out_partition, [&] {
    return partition_of(partition, "partition")
        .cartesian(list(&required(shape, "shape"), dim_count, "shape"));
  });
}

gw_status gw_partition_subtopology(const gw_partition* partition, const int32_t* kept, size_t kept_count,
                                   gw_partition** out_partition) {
  return derive(out_partition, [&] {
    return partition_of(partition, "partition")
        .subtopology(list(&required(kept, "kept"), kept_count, "kept"));
  });
}

gw_partition* gw_partition_retain(gw_partition* partition) { return retain(partition); }
void gw_partition_release(gw_partition* partition) { release(partition); }

void gw_partition_info_init(gw_partition_info* info, size_t size) {
  gw_partition_info d{};
  d.rank = -1;
  init_struct(info, size, d);
}

gw_status gw_partition_describe(const gw_partition* partition, gw_partition_info* info) {
  return guarded([&] {
    check_out_struct(info, "info");
    const Partition& p = partition_of(partition, "partition");
    gw_partition_info filled;
    gw_partition_info_init(&filled, sizeof filled);
    filled.active = p.active() ? 1 : 0;
    filled.rank = p.rank();
    filled.size = p.size();
    filled.ndim = p.dims();
    std::copy(p.shape().begin(), p.shape().end(), filled.shape);
    const std::vector<int> index = p.index();
    std::copy(index.begin(), index.end(), filled.index);
    write_struct(info, filled);
  });
}

gw_status gw_partition_neighbors(const gw_partition* partition, int32_t dim, int32_t* out_before,
                                 int32_t* out_after) {
  return guarded([&] {
    int32_t& before = out(out_before, "out_before");
    int32_t& after = out(out_after, "out_after");
    std::tie(before, after) = partition_of(partition, "partition").neighbors(dim);
  });
}

void gw_movement_options_init(gw_movement_options* options, size_t size) {
  gw_movement_options d{};
  d.backward_scale = 1;
  init_struct(options, size, d);
}

gw_status gw_movement_create(const gw_partition* source, const gw_partition* target, gw_movement_kind kind,
                             const gw_movement_options* options, gw_movement** out_movement) {
  return guarded([&] {
    if (out_movement != nullptr) *out_movement = nullptr;
    const Partition& from = partition_of(source, "source");
    MovementOptions read;
    agreed(*from.base(), [&] {
      out(out_movement, "out_movement");
      if (kind < GW_MOVEMENT_ALL_GATHER || kind > GW_MOVEMENT_REPARTITION)
        fail(Code::invalid_argument, "kind is ", kind, ", not 0 to ", GW_MOVEMENT_REPARTITION);
      read = movement_options(read_struct(options, gw_movement_options_init, "options"));
    });
    ModulePtr module = make_movement(static_cast<Movement>(kind), from,
                                     target != nullptr ? &target->partition : nullptr, read);
    *out_movement = new gw_movement(std::make_shared<Mover>(std::move(module), from.base()));
  });
}

gw_status gw_movement_duplicate(const gw_movement* movement, gw_movement** out_movement) {
  return guarded([&] {
    gw_movement*& result = out(out_movement, "out_movement");
    result = new gw_movement(required(movement, "movement").mover);
  });
}

gw_movement* gw_movement_retain(gw_movement* movement) { return retain(movement); }
void gw_movement_release(gw_movement* movement) { release(movement); }

gw_status gw_movement_forward(gw_movement* movement, const gw_view* input, void* stream,
                              gw_tensor** out_tensor) {
  return guarded([&] {
    if (out_tensor != nullptr) *out_tensor = nullptr;
    UserStates& kept = required(movement, "movement").kept;
    Mover& m = *movement->mover;
    const std::lock_guard lock(m.mutex);
    const auto [x, ordered_on] = m.read(input, "input", stream, out_tensor);
    m.frame.reset();
    Context ctx = m.context(*ordered_on);
    const Tensor moved = m.module->forward_one(ctx, x, &m.frame);
    m.frame.user_states().move_to(kept, *m.module);
    *out_tensor = m.return_tensor(moved, *ordered_on);
  });
}

gw_status gw_movement_backward(gw_movement* movement, const gw_view* output_grad, void* stream,
                               gw_tensor** out_tensor) {
  return guarded([&] {
    if (out_tensor != nullptr) *out_tensor = nullptr;
    Mover& m = *required(movement, "movement").mover;
    const std::lock_guard lock(m.mutex);
    const auto [dy, ordered_on] = m.read(output_grad, "output_grad", stream, out_tensor);
    const Lent lent(*movement);
    Context ctx = m.context(*ordered_on);
    const Stack::Mark before = m.frame.mark();
    *out_tensor = m.return_tensor(m.module->backward_one(ctx, dy, m.frame), *ordered_on);
    m.frame.compact(ctx, before, Tensor());
  });
}
