// The host engine with ranks as processes: the same results as with threads, the arena, leaving in order.
#include "gang/host_reference.h"
#include "gang/host_threads.h"
#include "gang/processes.h"

namespace gangway::test {
namespace {

struct Joined {
  std::shared_ptr<Rank> rank = std::make_shared<Rank>(make_device("cpu", DeviceOptions{0, 1}));
  std::shared_ptr<Engine> engine;

  Joined(int r, int size, const std::shared_ptr<Store>& store, EngineOptions options = small_arena()) {
    options.rank = r;
    options.size = size;
    engine = make_engine("host", rank, options, store);
  }
  Stream& stream() { return rank->device().stream(); }
};

// One call, tensors inside the arena or not; what this rank got.
Bytes one_call(Joined& joined, Collective c, bool inside) {
  const int r = joined.engine->rank(), size = joined.engine->size();
  const Bytes in = sample_input(c, r, size);
  const size_t out_bytes = out_count(c, r, size) * item_bytes(c.dtype);
  const auto allocator = inside ? joined.engine->allocator() : joined.rank->device().allocator();
  const auto a = Buffer::allocate(allocator, in.size());
  const auto b = Buffer::allocate(allocator, out_bytes);
  if (!in.empty()) std::memcpy(a->data(), in.data(), in.size());
  c.in = a->data();
  c.out = b->data();
  now(*joined.engine, c, joined.stream());
  Bytes out(out_bytes);
  if (out_bytes != 0) std::memcpy(out.data(), b->data(), out_bytes);
  return out;
}

class HostProcesses : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, HostProcesses, testing::Values(1, 2, 3, 4, 8));

TEST_P(HostProcesses, EveryOperationEqualsTheReference) {
  const int size = GetParam();
  Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report&) {
    Joined joined(r, size, store);
    for (const CollectiveOp op :
         {CollectiveOp::all_reduce, CollectiveOp::all_gather, CollectiveOp::reduce_scatter, CollectiveOp::broadcast,
          CollectiveOp::reduce, CollectiveOp::gather, CollectiveOp::scatter, CollectiveOp::all_to_all})
      for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{100003}})
        for (const bool inside : {false, true}) {
          Collective c;
          c.op = op;
          c.count = count;
          const bool folds = op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter || op == CollectiveOp::reduce;
          c.reduce = folds ? Reduce::sum : Reduce::none;
          c.peer = op == CollectiveOp::broadcast || op == CollectiveOp::reduce || op == CollectiveOp::gather ||
                           op == CollectiveOp::scatter
                       ? size - 1
                       : -1;
          std::vector<Bytes> in;
          for (int i = 0; i < size; ++i) in.push_back(sample_input(c, i, size));
          const bool gets = out_count(c, r, size) != 0;
          const Bytes out = one_call(joined, c, inside);
          if (gets && out != reference(c, in, r))
            fail(Code::internal, name(op), " of ", count, inside ? " inside" : " outside", " is wrong");
        }
    joined.engine->shutdown(Deadline::after_ms(10'000));
  });
  ranks.expect_all_well();
}

}  // namespace
}  // namespace gangway::test
