// Every operation of the host engine with ranks as threads, against a serial reference.
#include <atomic>

#include "gang/host/reference.h"
#include "gang/host/threads.h"

namespace gangway::test {
namespace {

const std::vector<CollectiveOp> kMoves{CollectiveOp::all_gather, CollectiveOp::broadcast,
                                       CollectiveOp::gather, CollectiveOp::scatter, CollectiveOp::all_to_all};
const std::vector<CollectiveOp> kFolds{CollectiveOp::all_reduce, CollectiveOp::reduce_scatter,
                                       CollectiveOp::reduce};

bool rooted(CollectiveOp op) {
  return op == CollectiveOp::broadcast || op == CollectiveOp::gather || op == CollectiveOp::scatter ||
         op == CollectiveOp::reduce;
}

// One call on every rank, each with its tensors inside or outside the arena as `inside` says.
void check_call(ThreadRanks& ranks, const Collective& call, uint32_t inside,
                const std::vector<size_t>& matrix = {}) {
  const int size = static_cast<int>(ranks.engines.size());
  const auto w = static_cast<size_t>(size);
  std::vector<Collective> calls(w, call);
  std::vector<std::vector<size_t>> counts(w);
  for (size_t r = 0; r < w && !matrix.empty(); ++r) {
    for (size_t j = 0; j < w; ++j) counts[r].push_back(matrix[r * w + j]);
    for (size_t j = 0; j < w; ++j) counts[r].push_back(matrix[j * w + r]);
    calls[r].counts = counts[r].data();
  }
  std::vector<Bytes> in(w), out(w);
  for (size_t r = 0; r < w; ++r) in[r] = sample_input(calls[r], static_cast<int>(r), size);
  ranks.run([&](int r, Engine& engine) {
    const auto i = static_cast<size_t>(r);
    Collective c = calls[i];
    const size_t out_bytes = out_count(c, r, size) * item_bytes(c.dtype);
    Stream& stream = ranks.ranks[i]->device().stream();
    if ((inside >> r & 1) != 0) {
      const auto a = Buffer::allocate(engine.shared_memory()->allocator(), in[i].size());
      const auto b = Buffer::allocate(engine.shared_memory()->allocator(), out_bytes);
      if (!in[i].empty()) std::memcpy(a->data(), in[i].data(), in[i].size());
      if (out_bytes != 0) std::memset(b->data(), 0xee, out_bytes);
      c.in = a->data();
      c.out = b->data();
      now(engine, c, stream);
      out[i].assign(static_cast<unsigned char*>(b->data()),
                    static_cast<unsigned char*>(b->data()) + out_bytes);
    } else {
      Bytes a = in[i];
      out[i].assign(out_bytes, 0xee);
      c.in = a.data();
      c.out = out[i].data();
      now(engine, c, stream);
    }
  });
  for (size_t r = 0; r < w; ++r) {
    ASSERT_EQ(out[r], reference(calls[r], in, static_cast<int>(r), matrix))
        << name(call.op) << " " << name(call.reduce) << " " << call.count << " " << name(call.dtype)
        << ", rank " << r << " of " << size << ", inside " << inside;
  }
}

const std::vector<size_t> kCounts{0, 1, 7, 4096, 100003};

class HostEngine : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, HostEngine, testing::Values(1, 2, 3, 4, 7, 8));

TEST_P(HostEngine, MovesEqualTheReference) {
  const int size = GetParam();
  ThreadRanks ranks(size);
  for (const CollectiveOp op : kMoves)
    for (const size_t count : kCounts)
      for (const DType dtype : {DType::u8, DType::f32, DType::c128}) {
        if (dtype != DType::f32 && count == 100003 && size > 3) continue;
        Collective c;
        c.op = op;
        c.count = count;
        c.dtype = dtype == DType::c128 && count > 4096 ? DType::i64 : dtype;
        c.peer = rooted(op) ? (size - 1) / 2 : -1;
        if (c.dtype == DType::c128) c.dtype = DType::i64;
        for (const uint32_t inside : {0u, ~0u, 0x55u}) check_call(ranks, c, inside);
      }
}

TEST_P(HostEngine, ReductionsFoldInRankOrder) {
  const int size = GetParam();
  ThreadRanks ranks(size);
  for (const CollectiveOp op : kFolds)
    for (const size_t count : kCounts)
      for (const DType dtype :
           {DType::f32, DType::bf16, DType::f64, DType::i32, DType::f16, DType::i64, DType::u8}) {
        if (dtype != DType::f32 && count == 100003 && (size > 3 || dtype == DType::f64)) continue;
        Collective c;
        c.op = op;
        c.count = count;
        c.dtype = dtype;
        c.reduce = Reduce::sum;
        c.peer = rooted(op) ? size - 1 : -1;
        for (const uint32_t inside : {0u, ~0u, 0x55u}) check_call(ranks, c, inside);
      }
}

// Of at least 16 MiB, which are written past the caches; an odd count, so parts lie at any address.
TEST(HostEngineLarge, OutputsThatNoCacheHoldsAreWhole) {
  constexpr size_t kCount = (16 << 20) / sizeof(float) + 3;
  ThreadRanks ranks(2);
  for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::broadcast, CollectiveOp::all_reduce,
                                CollectiveOp::reduce, CollectiveOp::reduce_scatter}) {
    Collective c;
    c.op = op;
    c.count = kCount;
    c.dtype = DType::f32;
    c.peer = rooted(op) ? 1 : -1;
    if (op != CollectiveOp::all_gather && op != CollectiveOp::broadcast) c.reduce = Reduce::sum;
    for (const uint32_t inside : {0u, ~0u}) check_call(ranks, c, inside);
  }
  // In place on one of the two alone.
  ranks.run([&](int r, Engine& engine) {
    const auto in = Buffer::allocate(engine.shared_memory()->allocator(), kCount * sizeof(float));
    const auto out = Buffer::allocate(engine.shared_memory()->allocator(), kCount * sizeof(float));
    auto* const x = static_cast<float*>(in->data());
    for (size_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i % 1000) + static_cast<float>(r);
    Collective c;
    c.op = CollectiveOp::all_reduce;
    c.count = kCount;
    c.reduce = Reduce::sum;
    c.in = x;
    c.out = r == 0 ? in->data() : out->data();
    now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream());
    const auto* const y = static_cast<const float*>(c.out);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(y[i], 2 * static_cast<float>(i % 1000) + 1) << i;
  });
}

TEST_P(HostEngine, EveryReductionOfEveryTypeEqualsTheReference) {
  const int size = GetParam();
  ThreadRanks ranks(size);
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean})
    for (const Reduce reduce : {Reduce::sum, Reduce::mean, Reduce::product, Reduce::min, Reduce::max}) {
      if (dtype == DType::boolean && reduce != Reduce::min && reduce != Reduce::max) continue;
      if (reduce == Reduce::mean && !is_floating(dtype)) continue;
      for (const size_t count : {size_t{5}, size_t{3001}}) {
        Collective c;
        c.op = CollectiveOp::all_reduce;
        c.count = count;
        c.dtype = dtype;
        c.reduce = reduce;
        check_call(ranks, c, ~0u);
      }
    }
}

TEST_P(HostEngine, CountsThatDifferByRankEqualTheReference) {
  const int size = GetParam();
  const auto w = static_cast<size_t>(size);
  ThreadRanks ranks(size);
  for (const size_t scale : {size_t{1}, size_t{900}, size_t{40000}}) {
    if (scale == 40000 && size > 4) continue;
    std::vector<size_t> counts(w), matrix(w * w);
    for (size_t i = 0; i < w; ++i) counts[i] = i % 3 * scale + i;
    for (size_t i = 0; i < w * w; ++i) matrix[i] = i % 4 * scale + i % 2;
    for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                                  CollectiveOp::gather, CollectiveOp::scatter}) {
      Collective c;
      c.op = op;
      c.counts = counts.data();
      c.reduce = op == CollectiveOp::reduce_scatter ? Reduce::sum : Reduce::none;
      c.peer = rooted(op) ? 0 : -1;
      for (const uint32_t inside : {0u, ~0u, 0xaau}) check_call(ranks, c, inside);
    }
    Collective c;
    c.op = CollectiveOp::all_to_all;
    for (const uint32_t inside : {0u, ~0u, 0xaau}) check_call(ranks, c, inside, matrix);
  }
}

TEST_P(HostEngine, InPlaceFormsEqualTheOthers) {
  const int size = GetParam();
  const auto w = static_cast<size_t>(size);
  ThreadRanks ranks(size);
  for (const uint32_t places : {0u, ~0u, 0x55u, 0xaau})
    for (const size_t count : {size_t{3}, size_t{300}, size_t{2000}, size_t{100003}}) {
      ranks.run([&](int r, Engine& engine) {
        const auto i = static_cast<size_t>(r);
        const bool inside = (places >> r & 1) != 0;
        Stream& stream = ranks.ranks[i]->device().stream();
        const auto arena = Buffer::allocate(engine.shared_memory()->allocator(), w * count * 4);
        std::vector<float> heap(w * count);
        float* const x = inside ? static_cast<float*>(arena->data()) : heap.data();
        Collective c;
        c.count = count;
        c.in = c.out = x;
        const auto fill = [&] {
          for (size_t k = 0; k < w * count; ++k) x[k] = static_cast<float>(k % 5 + i);
        };
        const float ranks_sum = static_cast<float>(size * (size - 1) / 2);
        fill();
        c.op = CollectiveOp::all_reduce;
        c.reduce = Reduce::sum;
        now(engine, c, stream);
        for (size_t k = 0; k < count; ++k)
          ASSERT_EQ(x[k], static_cast<float>(k % 5) * static_cast<float>(size) + ranks_sum);
        fill();
        c.op = CollectiveOp::broadcast;
        c.reduce = Reduce::none;
        c.peer = size - 1;
        now(engine, c, stream);
        for (size_t k = 0; k < count; ++k) ASSERT_EQ(x[k], static_cast<float>(k % 5 + w - 1));
        fill();
        c.op = CollectiveOp::all_gather;
        c.peer = -1;
        c.in = x + i * count;
        now(engine, c, stream);
        for (size_t k = 0; k < w * count; ++k) ASSERT_EQ(x[k], static_cast<float>(k % 5 + k / count));
        fill();
        c.op = CollectiveOp::reduce_scatter;
        c.reduce = Reduce::sum;
        c.in = x;
        c.out = x + i * count;
        now(engine, c, stream);
        for (size_t k = i * count; k < (i + 1) * count; ++k)
          ASSERT_EQ(x[k], static_cast<float>(k % 5) * static_cast<float>(size) + ranks_sum);
        // Nobody writes again before all have looked.
        Collective barrier;
        now(engine, barrier, stream);
      });
    }
}

TEST_P(HostEngine, AccumulateAddsToTheOutput) {
  const int size = GetParam();
  ThreadRanks ranks(size);
  for (const bool inside : {false, true})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const size_t count : {size_t{3}, size_t{50001}}) {
        ranks.run([&](int r, Engine& engine) {
          const size_t bytes = count * item_bytes(dtype);
          const auto a = Buffer::allocate(
              inside ? engine.shared_memory()->allocator() : make_device("cpu")->allocator(), bytes);
          const auto b = Buffer::allocate(
              inside ? engine.shared_memory()->allocator() : make_device("cpu")->allocator(), bytes);
          Bytes in(bytes), out(bytes);
          for (size_t k = 0; k < count; ++k)
            set(in, k, dtype, static_cast<double>(k % 3)), set(out, k, dtype, r + 1);
          std::memcpy(a->data(), in.data(), bytes);
          std::memcpy(b->data(), out.data(), bytes);
          Collective c;
          c.op = CollectiveOp::all_reduce;
          c.reduce = Reduce::sum;
          c.accumulate = true;
          c.dtype = dtype;
          c.count = count;
          c.in = a->data();
          c.out = b->data();
          now(engine, c, ranks.ranks[static_cast<size_t>(r)]->device().stream());
          std::memcpy(out.data(), b->data(), bytes);
          for (size_t k = 0; k < count; ++k)
            ASSERT_EQ(get(out, k, dtype), static_cast<double>(k % 3) * size + r + 1) << k;
        });
      }
}

TEST_P(HostEngine, SendsAndReceivesInBatchesCannotDeadlock) {
  const int size = GetParam();
  ThreadRanks ranks(size);
  for (const bool inside : {false, true})
    for (const size_t count : {size_t{0}, size_t{3}, size_t{1000}, size_t{300001}}) {
      ranks.run([&](int r, Engine& engine) {
        const auto w = static_cast<size_t>(size);
        const auto arena = Buffer::allocate(engine.shared_memory()->allocator(), 2 * w * count * 4 + 64);
        std::vector<int32_t> heap(2 * w * count);
        int32_t* const out = inside ? static_cast<int32_t*>(arena->data()) : heap.data();
        int32_t* const in = out + w * count;
        std::vector<Collective> span;
        for (int j = 0; j < size; ++j) {
          Collective send, recv;
          send.op = CollectiveOp::send;
          recv.op = CollectiveOp::recv;
          send.peer = recv.peer = j;
          send.dtype = recv.dtype = DType::i32;
          send.count = recv.count = count;
          for (size_t k = 0; k < count; ++k) out[static_cast<size_t>(j) * count + k] = r * 1000 + j;
          send.in = out + static_cast<size_t>(j) * count;
          recv.out = in + static_cast<size_t>(j) * count;
          span.push_back(send);
          span.push_back(recv);
        }
        engine.run(Channel::user, span, ranks.ranks[static_cast<size_t>(r)]->device().stream())
            ->wait_input(Deadline::never());
        for (int j = 0; j < size; ++j)
          for (size_t k = 0; k < count; ++k) ASSERT_EQ(in[static_cast<size_t>(j) * count + k], j * 1000 + r);
        Collective barrier;
        now(engine, barrier, ranks.ranks[static_cast<size_t>(r)]->device().stream());
      });
    }
}

}  // namespace
}  // namespace gangway::test
