// The arena: blocks, limits, shared regions; and the arithmetic of reductions for each instruction set.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <latch>
#include <optional>
#include <span>

#include "gang/host/memory/arena.h"
#include "gang/host/presence/board.h"
#include "gang/host/presence/region.h"
#include "gang/host/reference.h"
#include "gang/host/threads.h"
#include "gang/kernels/fold.h"

namespace gangway::test {
namespace {

TEST(HostMemory, BlocksAreAlignedAndFreedInAnyOrderFromAnyThread) {
  ThreadRanks ranks(2);
  const auto allocator = ranks.engines[0]->shared_memory()->allocator();
  EXPECT_EQ(allocator->kind(), MemoryKind::gang_shared);
  std::vector<std::shared_ptr<Buffer>> blocks;
  uint64_t seed = 7;
  for (int i = 0; i < 400; ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    const size_t bytes = seed >> 33 & (i % 10 == 0 ? 0x7ffff : 0x3fff);
    blocks.push_back(Buffer::allocate(allocator, bytes));
    if (bytes == 0) continue;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()->data()) % 64, 0u);
    std::memset(blocks.back()->data(), i & 0xff, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i]->bytes() != 0) {
      const auto* const p = static_cast<unsigned char*>(blocks[i]->data());
      ASSERT_EQ(p[0], i & 0xff);
      ASSERT_EQ(p[blocks[i]->bytes() - 1], i & 0xff);
    }
  std::reverse(blocks.begin() + 100, blocks.begin() + 300);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < blocks.size(); i += 4) blocks[i].reset();
    });
  for (std::thread& t : threads) t.join();
  // All of it fits again as one.
  const auto whole = Buffer::allocate(allocator, uint64_t{400} << 20);
  EXPECT_NE(whole->data(), nullptr);
}

TEST(HostMemory, ABlockOutlivesTheEngine) {
  std::shared_ptr<Buffer> block;
  {
    ThreadRanks ranks(2);
    block = Buffer::allocate(ranks.engines[1]->shared_memory()->allocator(), 100'000);
  }
  std::memset(block->data(), 1, block->bytes());
  block.reset();
}

// A board of three ranks and their views of it, as if each were in a process of its own.
struct SharedBoard {
  std::shared_ptr<host::Arena> arena = host::Arena::create(3, false, {uint64_t{64} << 20, 0});
  host::Member owner{arena, 0};
  uint64_t offset = host::Board::create(owner, std::vector<int>{0, 1, 2}, "gang");
  std::array<std::optional<host::Board>, 3> views;

  SharedBoard() {
    for (int r = 0; r < 3; ++r) views[static_cast<size_t>(r)].emplace(arena, offset).attach(r);
  }
  void lose(int r, host::LossCause cause) {
    arena->rank(r).loss_cause = static_cast<int32_t>(cause);
    arena->rank(r).state = static_cast<int32_t>(host::RankState::lost);
  }
  bool freed() const { return arena->rank(0).freed.load() == offset; }
};

TEST(HostMemory, SurvivorsFreeTheBoardOfADeadRank) {
  SharedBoard board;
  board.lose(2, host::LossCause::signal);
  board.views[1].reset();
  EXPECT_FALSE(board.freed());
  board.views[0].reset();
  EXPECT_TRUE(board.freed());
}

TEST(HostMemory, ASilentRankThatWakesStillFindsItsBoard) {
  SharedBoard board;
  board.lose(2, host::LossCause::silent);
  board.views[0].reset();
  board.views[1].reset();
  EXPECT_FALSE(board.freed());
  board.views[2].reset();
  EXPECT_TRUE(board.freed());
}

TEST(HostMemory, ABoardThatItsHoldersLeaveAtOnceIsFreedOnce) {
  const auto arena = host::Arena::create(2, true, {uint64_t{64} << 20, 0});
  host::Member owner(arena, 0);
  const auto take_back = [&] { owner.slice()->free(owner.slice()->allocate(host::kPage)); };
  take_back();
  const uint64_t before = arena->header().used;
  for (int i = 0; i < 500; ++i) {
    const uint64_t offset = host::Board::create(owner, std::vector<int>{0, 1}, "gang");
    auto first = std::make_unique<host::Board>(arena, offset);
    auto second = std::make_unique<host::Board>(arena, offset);
    first->attach(0);
    second->attach(1);
    std::latch both(2);
    std::thread other([&] {
      both.arrive_and_wait();
      second.reset();
    });
    both.arrive_and_wait();
    first.reset();
    other.join();
    take_back();
    ASSERT_EQ(arena->header().used, before) << "round " << i;
  }
}

TEST(HostMemory, LackOfMemoryForAGangIsReportedToMembersAndOthers) {
  EngineOptions options = small_arena();
  options.memory_limit = uint64_t{32} << 20;
  ThreadRanks ranks(3, options);
  std::array<size_t, 3> made{};
  ranks.run([&](int r, Engine& engine) {
    std::vector<std::shared_ptr<Engine>> gangs;
    try {
      for (;;) gangs.push_back(engine.create(std::vector<int>{0, 1}, "child"));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::out_of_memory) << error.message();
    }
    made[static_cast<size_t>(r)] = gangs.size();
    now(engine, Collective{}, ranks.ranks[static_cast<size_t>(r)]->device().stream());  // all are in step
  });
  EXPECT_EQ(made[0], made[1]);
  EXPECT_EQ(made[0], made[2]);
}

TEST(HostMemory, LackOfMemoryIsAnErrorWithBothNumbers) {
  EngineOptions options = small_arena();
  options.memory_limit = uint64_t{100} << 20;
  ThreadRanks ranks(2, options);
  const auto big = Buffer::allocate(ranks.engines[0]->shared_memory()->allocator(), uint64_t{60} << 20);
  try {
    Buffer::allocate(ranks.engines[1]->shared_memory()->allocator(), uint64_t{60} << 20);
    FAIL() << "over the limit";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    EXPECT_NE(error.message().find("62914560 bytes are wanted"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("of 104857600 bytes"), std::string::npos) << error.message();
  }
  const auto fits = Buffer::allocate(ranks.engines[1]->shared_memory()->allocator(), uint64_t{30} << 20);
  EXPECT_NE(fits->data(), nullptr);
  EXPECT_THROW(Buffer::allocate(ranks.engines[1]->shared_memory()->allocator(), uint64_t{2} << 30), Error);
}

TEST(HostMemory, ASizeBeyondTheAddressSpaceIsRefusedAndTakesNoMemory) {
  ThreadRanks ranks(2, small_arena());
  ranks.run([&](int r, Engine& engine) {
    const auto first = Buffer::allocate(engine.shared_memory()->allocator(), 1 << 20);
    for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - 4094, SIZE_MAX / 2}) {
      for (const bool shared : {false, true}) {
        try {
          if (shared)
            engine.shared_memory()->allocate(bytes);
          else
            Buffer::allocate(engine.shared_memory()->allocator(), bytes);
          ADD_FAILURE() << bytes << " bytes on rank " << r;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::out_of_memory) << error.message();
        }
      }
    }
    const auto second = Buffer::allocate(engine.shared_memory()->allocator(), 1 << 20);
    EXPECT_NE(first->data(), second->data());
  });
}

TEST(HostMemory, AFreedLargeBlockGivesItsShareBack) {
  EngineOptions options = small_arena();
  options.memory_limit = uint64_t{100} << 20;
  ThreadRanks ranks(2, options);
  for (int i = 0; i < 10; ++i) {
    const auto block =
        Buffer::allocate(ranks.engines[i % 2]->shared_memory()->allocator(), uint64_t{80} << 20);
    ASSERT_NE(block->data(), nullptr);
  }
}

TEST(HostMemory, ASharedRegionIsZeroedAndSeenByAll) {
  EngineOptions options = small_arena();
  options.memory_limit = uint64_t{100} << 20;
  ThreadRanks ranks(3, options);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    Collective barrier;
    for (int round = 0; round < 5; ++round) {  // each time the last holder frees it
      constexpr size_t kBytes = 50 << 20;
      auto held = std::make_unique<SharedRegion>(engine.shared_memory()->allocate(kBytes));
      const SharedRegion& region = *held;
      EXPECT_FALSE(region.writable->read_only());
      EXPECT_TRUE(region.readable->read_only());
      auto* const mine = static_cast<unsigned char*>(region.writable->data()) + r * 1000;
      EXPECT_EQ(mine[0], 0);
      mine[0] = static_cast<unsigned char>(r + 1);
      now(engine, barrier, stream);
      for (int p = 0; p < 3; ++p)
        EXPECT_EQ(static_cast<unsigned char*>(region.readable->data())[p * 1000], p + 1);
      held.reset();
      now(engine, barrier, stream);
    }
    EXPECT_EQ(engine.shared_memory()->allocate(0).writable->bytes(), 0u);
  });
}

TEST(HostMemory, SharedRegionsOfOtherSizesAreRefusedAndFreed) {
  EngineOptions options = small_arena();
  options.memory_limit = uint64_t{100} << 20;
  ThreadRanks ranks(2, options);
  ranks.run([&](int r, Engine& engine) {
    for (int i = 0; i < 3; ++i) {  // the second would not fit beside the first
      try {
        engine.shared_memory()->allocate((r == 0 ? 60 : 50) << 20);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::mismatch) << error.message();
      }
      Collective barrier;
      now(engine, barrier, ranks.ranks[static_cast<size_t>(r)]->device().stream());
    }
    Collective barrier;
    now(engine, barrier, ranks.ranks[static_cast<size_t>(r)]->device().stream());
  });
}

// Rank 1 has called alloc_shared as far as its own word on the size, or not at all.
void leave_a_region_half_made(Engine& child, size_t bytes, bool says_size, Stream& stream) {
  const uint64_t size[2] = {0, bytes};
  uint64_t sizes[4] = {};
  Collective c;
  c.op = CollectiveOp::all_gather;
  c.in = size;
  c.out = sizes;
  c.count = sizeof size;
  c.dtype = DType::u8;
  if (says_size) now(child, c, stream, Channel::control);
  child.abort(Error(Code::aborted, "enough"));
}

TEST(HostMemory, ARegionThatABreakLeavesHalfMadeGoesWithItsGang) {
  constexpr size_t kBytes = 60 << 20;
  EngineOptions options = small_arena();
  options.memory_limit = uint64_t{100} << 20;
  for (const bool says_size : {false, true}) {
    ThreadRanks ranks(2, options);
    ranks.run([&](int r, Engine& engine) {
      Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
      for (int round = 0; round < 2; ++round) {  // the second would not fit beside the first
        auto child = engine.create(std::vector<int>{0, 1}, "child");
        if (r == 1) {
          leave_a_region_half_made(*child, kBytes, says_size, stream);
        } else {
          try {
            child->shared_memory()->allocate(kBytes);
            ADD_FAILURE();
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Code::aborted) << error.message();
          }
        }
        child.reset();
        ranks.ranks[static_cast<size_t>(r)]->works()->progress();  // which still lists it
        now(engine, Collective{}, stream);
      }
      EXPECT_EQ(engine.shared_memory()->allocate(kBytes).writable->bytes(), kBytes);
    });
  }
}

TEST(HostMemory, TheBoardKeepsARegionUntilEveryMemberHasTakenItsHold) {
  SharedBoard board;
  std::vector<std::unique_ptr<host::Member>> members;
  for (int r = 1; r < 3; ++r) members.push_back(std::make_unique<host::Member>(board.arena, r));
  const auto take = [&](int r, uint64_t made) {
    const host::Member& member = r == 0 ? board.owner : *members[static_cast<size_t>(r) - 1];
    return std::make_unique<host::RegionHold>(member, *board.views[static_cast<size_t>(r)], made);
  };
  const auto taken = [&] { return board.arena->header().used.load(); };
  const auto take_back = [&] { board.owner.slice()->free(board.owner.slice()->allocate(host::kPage)); };
  take_back();
  const uint64_t before = taken();
  uint64_t made = host::RegionHold::make(board.owner, *board.views[0], 1 << 20);
  for (int r = 0; r < 3; ++r) take(r, made).reset();
  take_back();
  EXPECT_EQ(taken(), before) << "all took theirs and let go";
  made = host::RegionHold::make(board.owner, *board.views[0], 1 << 20);
  auto first = take(0, made), second = take(1, made);
  first.reset();
  second.reset();
  board.lose(2, host::LossCause::signal);
  take(1, made);  // a hold that ends while the death of rank 2 is known
  take_back();
  EXPECT_GT(taken(), before) << "the board has its hold";
  for (int r = 0; r < 2; ++r) board.views[static_cast<size_t>(r)].reset();
  take_back();
  EXPECT_LT(taken(), before) << "the region and the board are gone";
}

TEST(HostMemory, ABoardKeepsAChildBoardUntilEveryMemberIsAttached) {
  for (int takers = 0; takers <= 2; ++takers) {
    SharedBoard board;
    const auto taken = [&] { return board.arena->header().used.load(); };
    const auto take_back = [&] { board.owner.slice()->free(board.owner.slice()->allocate(host::kPage)); };
    take_back();
    const uint64_t before = taken();
    const uint64_t child = host::Board::create(board.owner, std::vector<int>{0, 1}, "child");
    board.views[0]->hold_child(child);
    for (int r = 0; r < takers; ++r) {
      host::Board view(board.arena, child);
      view.attach(r);
      board.views[static_cast<size_t>(r)]->child_taken(0, view);
    }
    take_back();
    if (takers == 2)
      EXPECT_EQ(taken(), before) << "both took it and let go";
    else
      EXPECT_GT(taken(), before) << "it is held for who may yet take it";
    for (auto& view : board.views) view.reset();
    take_back();
    EXPECT_LT(taken(), before) << takers << " took it; both boards are gone";
  }
}

// What all ranks have taken, as a refusal says it.
unsigned long long taken_by_all(Engine& engine, size_t limit) {
  unsigned long long taken = 0;
  try {
    Buffer::allocate(engine.shared_memory()->allocator(), limit + 1);
  } catch (const Error& error) {
    EXPECT_EQ(std::sscanf(error.message().c_str(), "host engine: %*u bytes are wanted, but %llu of", &taken),
              1)
        << error.message();
  }
  return taken;
}

TEST(HostMemory, AnEngineThatABreakLeavesHalfMadeGoesWithItsParent) {
  constexpr size_t kLimit = 60 << 20;
  const std::vector<int> both{0, 1};
  EngineOptions options = small_arena();
  options.memory_limit = kLimit;
  ThreadRanks ranks(2, options);
  ranks.run([&](int r, Engine& engine) {
    Stream& stream = ranks.ranks[static_cast<size_t>(r)]->device().stream();
    std::vector<unsigned long long> taken;
    for (int round = 0; round < 4; ++round) {
      auto parent = engine.create(both, "child");
      if (r == 0)
        EXPECT_THROW(parent->create(both, "child"), Error);
      else
        parent->abort(Error(Code::aborted, "enough"));
      parent.reset();
      ranks.ranks[static_cast<size_t>(r)]->works()->progress();  // which still lists it
      now(engine, Collective{}, stream);
      if (r == 0) taken.push_back(taken_by_all(engine, kLimit));
      now(engine, Collective{}, stream);
    }
    for (const auto round : taken) EXPECT_EQ(round, taken[0]);
  });
}

TEST(HostMemory, ABoardThatAnotherRankNamesIsChecked) {
  const auto arena = host::Arena::create(2, true, host::ArenaOptions{uint64_t{64} << 20, 0});
  host::Member member(arena, 0);
  const std::vector<int> members{0, 1};
  const uint64_t offset = host::Board::create(member, members, "gang");
  ASSERT_NE(host::Board::find(arena, offset), nullptr);
  EXPECT_EQ(host::Board::find(arena, offset)->size(), 2);
  const uint64_t end = arena->header().bytes;
  for (const uint64_t other :
       {uint64_t{0}, offset + 64, end - 64, end - host::kPage, end, end + host::kPage, ~uint64_t{0}})
    EXPECT_EQ(host::Board::find(arena, other), nullptr) << other;
  arena->at<host::BoardHeader>(offset)->size = 100'000;  // freed, and the page used for something else
  EXPECT_EQ(host::Board::find(arena, offset), nullptr);
}

using CopyWay = void (*)(void*, const void*, size_t) noexcept;
class HostCopy : public testing::TestWithParam<CopyWay> {};
INSTANTIATE_TEST_SUITE_P(Ways, HostCopy, testing::Values(host::copy_bytes, host::stream_bytes));

TEST_P(HostCopy, IsWholeWhateverLiesBetweenTargetAndSource) {
  constexpr size_t kRoom = 8192;
  std::vector<unsigned char> memory(3 * kRoom);
  // The same place within their pages, but for 3 bytes and the shift.
  const size_t head = -reinterpret_cast<uintptr_t>(memory.data()) % 4096;
  const std::span<unsigned char> from(memory.data() + head, kRoom), to(memory.data() + head + kRoom, kRoom);
  for (size_t i = 0; i < kRoom; ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 256);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1023}, size_t{1024}, size_t{4099}})
    for (size_t shift = 0; shift < 66; ++shift) {
      std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xee));
      GetParam()(to.data() + shift, from.data() + 3, bytes);
      host::end_stream();
      ASSERT_TRUE(std::equal(from.begin() + 3, from.begin() + 3 + static_cast<std::ptrdiff_t>(bytes),
                             to.begin() + static_cast<std::ptrdiff_t>(shift)));
      ASSERT_EQ(to[shift + bytes], 0xee);
      ASSERT_TRUE(shift == 0 || to[shift - 1] == 0xee);
    }
}

TEST(HostFold, InstructionSetsAgreeBitForBit) {
  for (const char* isa : {"portable", "avx2"}) {
    const host::FoldKernels* const kernels = host::fold_kernels(isa);
    if (kernels == nullptr) {
      std::printf("%s: not on this processor\n", isa);
      continue;
    }
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const int w : {1, 2, 3, 5})
        for (const size_t count : {size_t{0}, size_t{1}, size_t{9}, size_t{2500}}) {
          std::vector<Bytes> in;
          std::vector<const void*> pointers;
          for (int r = 0; r < w; ++r) {
            in.emplace_back(count * item_bytes(dtype) + 1);
            for (size_t i = 0; i < count; ++i)
              set(in.back(), i, dtype,
                  std::sin(static_cast<double>(i * 31 + static_cast<size_t>(r) * 7)) * 3);
          }
          for (const Bytes& b : in) pointers.push_back(b.data());
          Bytes out(count * item_bytes(dtype) + 1);
          host::FoldArgs args;
          args.in = pointers.data();
          args.ranks = w;
          args.count = count;
          args.out = out.data();
          args.dtype = dtype;
          args.reduce = Reduce::mean;
          kernels->fold(args);
          for (size_t i = 0; i < count; ++i) {
            double sum = get(in[0], i, dtype);
            for (int r = 1; r < w; ++r) {
              const double x = get(in[static_cast<size_t>(r)], i, dtype);
              sum = dtype == DType::f64 ? sum + x : static_cast<float>(sum) + static_cast<float>(x);
            }
            Bytes one(item_bytes(dtype));
            set(one, 0, dtype,
                dtype == DType::f64 ? sum / w : static_cast<float>(sum) / static_cast<float>(w));
            ASSERT_EQ(std::memcmp(one.data(), out.data() + i * item_bytes(dtype), one.size()), 0)
                << isa << " " << name(dtype) << " " << i;
          }
        }
  }
}

TEST(HostFold, ANotANumberOfAnyRankStays) {
  for (const Reduce reduce : {Reduce::min, Reduce::max}) {
    const float nan = std::nanf("");
    const float a[4] = {1, nan, 1, 1}, b[4] = {2, 2, nan, 2}, c[4] = {3, 3, 3, nan};
    const void* in[3] = {a, b, c};
    float out[4];
    host::FoldArgs args;
    args.in = in;
    args.ranks = 3;
    args.count = 4;
    args.out = out;
    args.reduce = reduce;
    host::fold_kernels().fold(args);
    EXPECT_EQ(out[0], reduce == Reduce::min ? 1 : 3);
    for (const int i : {1, 2, 3}) EXPECT_TRUE(std::isnan(out[i]));
  }
}

}  // namespace
}  // namespace gangway::test
