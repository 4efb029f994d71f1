// The host engine with ranks as processes: the same results as with threads, the arena, leaving in order.
#include <cstring>

#include "gang/host/input.h"
#include "gang/host/joined.h"
#include "gang/host/overlap.h"
#include "gang/host/reference.h"

namespace gangway::test {
namespace {

// One call, tensors inside the arena or not; what this rank got.
Bytes one_call(Joined& joined, Collective c, bool inside) {
  const int r = joined.engine->rank(), size = joined.engine->size();
  const Bytes in = sample_input(c, r, size);
  const size_t out_bytes = out_count(c, r, size) * item_bytes(c.dtype);
  const auto allocator =
      inside ? joined.engine->shared_memory()->allocator() : joined.rank->device().allocator();
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
    for (const CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::all_gather,
                                  CollectiveOp::reduce_scatter, CollectiveOp::broadcast, CollectiveOp::reduce,
                                  CollectiveOp::gather, CollectiveOp::scatter, CollectiveOp::all_to_all})
      for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{100003}})
        for (const bool inside : {false, true}) {
          Collective c;
          c.op = op;
          c.count = count;
          const bool folds = op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter ||
                             op == CollectiveOp::reduce;
          c.reduce = folds ? Reduce::sum : Reduce::none;
          c.peer = op == CollectiveOp::broadcast || op == CollectiveOp::reduce ||
                           op == CollectiveOp::gather || op == CollectiveOp::scatter
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

TEST_P(HostProcesses, CallsThatShareMemoryRunInCallOrder) {
  const int size = GetParam();
  Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report&) {
    Joined joined(r, size, store);
    Device& device = joined.rank->device();
    for (const bool inside : {false, true, r % 2 == 0})
      OverlappingCalls(*joined.engine, device.stream(),
                       inside ? joined.engine->shared_memory()->allocator() : device.allocator())
          .check_all();
    joined.engine->shutdown(Deadline::after_ms(60'000));
  });
  ranks.expect_all_well();
}

TEST(HostProcess, AnInputIsReadUntilItIsReusableAndNoLonger) {
  for (const int size : {2, 3}) {
    auto* const all =
        new (SharedStore::map(sizeof(Meeting))) Meeting(size);  // children may outlive this test
    Processes ranks(size, [&](int r, const std::shared_ptr<Store>& store, Report&) {
      Joined joined(r, size, store);
      for (const bool inside : {false, true, r % 2 == 0})
        ReusedInputs(*joined.engine, joined.rank->device(), inside, *all).check_all();
      joined.engine->shutdown(Deadline::after_ms(60'000));
    });
    ranks.expect_all_well();
  }
}

TEST(HostFork, EveryCallInAForkedChildIsRefused) {
  Processes ranks(2, [&](int r, const std::shared_ptr<Store>& store, Report& report) {
    Joined joined(r, 2, store);
    std::vector<float> x(10);
    const auto block = Buffer::allocate(joined.engine->shared_memory()->allocator(), 1000);
    sum(joined, x);
    const pid_t child = fork();
    if (child == 0) {
      int code = 0;
      try {
        sum(joined, x);
      } catch (const Error& error) {
        code = error.code() == Code::forked ? 42 : 1;
      }
      joined.engine.reset();  // touches nothing
      _exit(code);
    }
    int status = 0;
    waitpid(child, &status, 0);
    report.values[0] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    sum(joined, x);
    joined.engine->shutdown(Deadline::never());
  });
  ranks.expect_all_well();
  EXPECT_EQ(ranks.report(0).values[0], 42);
  EXPECT_EQ(ranks.report(1).values[0], 42);
}

}  // namespace
}  // namespace gangway::test
