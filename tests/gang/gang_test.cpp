// What a gang refuses, and what it is. The engine is the fake one of size 4 wherever a size over 1 is wanted.
#include "gang/gang.h"
#include "gang/agreement.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/expect_error.h"
#include "base/fork.h"

namespace gangway {
namespace {

using test::error_of;
using test::expect_error;

GangPtr fake(int rank, int size) {
  GangOptions options;
  options.threads = 1;
  return Gang::create_fake(rank, size, options, /*record=*/false);
}

struct Refusal {
  Collective record;
  const char* text;
};

float data[64];
const size_t sizes[] = {1, 2, 3, 4};
const size_t lists[] = {1, 2, 3, 4, 1, 5, 3, 4};
const size_t huge[] = {SIZE_MAX / 2, SIZE_MAX / 2, 1, 1};

Collective record(CollectiveOp op, size_t count, Reduce reduce = Reduce::none, int peer = -1,
                  DType dtype = DType::f32) {
  Collective c;
  c.op = op;
  c.in = data;
  c.out = data + 32;
  c.count = count;
  c.dtype = dtype;
  c.reduce = reduce;
  c.peer = peer;
  return c;
}

Collective with(Collective c, const void* in, void* out) {
  c.in = in;
  c.out = out;
  return c;
}

Collective with_counts(Collective c, const size_t* counts) {
  c.counts = counts;
  return c;
}

Collective accumulating(Collective c) {
  c.accumulate = true;
  return c;
}

using Op = CollectiveOp;

const Refusal refusals[] = {
    // Operations and types.
    {record(static_cast<Op>(11), 1), "gang.run: op 11 is unknown (0 to 10)"},
    {record(Op::barrier, 3), "gang.barrier: a barrier moves nothing, but count is 3"},
    {record(Op::all_reduce, 4), "gang.all_reduce: needs a reduce operation, but got none"},
    {record(Op::all_reduce, 4, static_cast<Reduce>(6)),
     "gang.all_reduce: reduce operation 6 is unknown (1 to 5)"},
    {record(Op::all_reduce, 4, Reduce::mean, -1, DType::i32),
     "gang.all_reduce: mean of the integer type i32"},
    {record(Op::reduce, 4, Reduce::mean, 0, DType::i64), "gang.reduce: mean of the integer type i64"},
    {record(Op::reduce_scatter, 1, Reduce::mean, -1, DType::u8),
     "gang.reduce_scatter: mean of the integer type u8"},
    {record(Op::all_reduce, 4, Reduce::sum, -1, DType::boolean),
     "gang.all_reduce: bool takes min and max only, but got sum"},
    {record(Op::all_reduce, 4, Reduce::mean, -1, DType::boolean),
     "gang.all_reduce: bool takes min and max only, but got mean"},
    {record(Op::reduce, 4, Reduce::product, 0, DType::boolean),
     "gang.reduce: bool takes min and max only, but got product"},
    {record(Op::all_reduce, 4, Reduce::sum, -1, DType::c64),
     "gang.all_reduce: c64 cannot be reduced (f64, f32, bf16, f16, i64, i32, u8; bool by min and max)"},
    {record(Op::reduce_scatter, 4, Reduce::max, -1, DType::i8),
     "gang.reduce_scatter: i8 cannot be reduced (f64, f32, bf16, f16, i64, i32, u8; bool by min and max)"},
    {record(Op::all_gather, 4, Reduce::none, -1, static_cast<DType>(detail::dl(1, 4))),
     "gang.all_gather: dtype(code 1, 4 bits, 1 lanes) cannot be moved: it must have one lane and a whole "
     "number of "
     "bytes"},
    {record(Op::broadcast, 4, Reduce::sum, 1), "gang.broadcast: takes no reduce operation, but got sum"},
    {accumulating(record(Op::all_gather, 4)),
     "gang.all_gather: accumulates nothing; only all_reduce, reduce and reduce_scatter do"},
    {accumulating(record(Op::all_reduce, 4, Reduce::sum, -1, DType::i32)),
     "gang.all_reduce: accumulates floating types only, not i32"},
    // Ranks, relative to the gang.
    {record(Op::broadcast, 4, Reduce::none, 4), "gang.broadcast: source rank 4 is outside [0, 4)"},
    {record(Op::broadcast, 4), "gang.broadcast: source rank -1 is outside [0, 4)"},
    {record(Op::reduce, 4, Reduce::sum, 7), "gang.reduce: source rank 7 is outside [0, 4)"},
    {record(Op::gather, 4, Reduce::none, 4), "gang.gather: source rank 4 is outside [0, 4)"},
    {record(Op::scatter, 4, Reduce::none, -2), "gang.scatter: source rank -2 is outside [0, 4)"},
    {record(Op::send, 4, Reduce::none, 4), "gang.send: peer rank 4 is outside [0, 4)"},
    {record(Op::recv, 4, Reduce::none, -1), "gang.recv: peer rank -1 is outside [0, 4)"},
    // Counts.
    {record(Op::all_gather, SIZE_MAX / 8),
     "gang.all_gather: 2305843009213693951 f32 times 4 are more bytes than an address holds"},
    {record(Op::all_reduce, SIZE_MAX, Reduce::sum),
     "gang.all_reduce: 18446744073709551615 f32 times 1 are more bytes than an address holds"},
    {with_counts(record(Op::all_reduce, 4, Reduce::sum), sizes),
     "gang.all_reduce: takes one count, not counts per rank"},
    {with_counts(record(Op::broadcast, 4, Reduce::none, 1), sizes),
     "gang.broadcast: takes one count, not counts per rank"},
    {with_counts(record(Op::all_gather, 0), huge),
     "gang.all_gather: counts up to rank 0 are more bytes than an address holds"},
    {with_counts(record(Op::all_to_all, 0), lists),
     "gang.all_to_all: rank 1 sends itself 2 elements, but expects 5"},
    // Buffers.
    {with(record(Op::all_reduce, 4, Reduce::sum), nullptr, data),
     "gang.all_reduce: the input is null, but 4 f32 are wanted"},
    {with(record(Op::all_reduce, 4, Reduce::sum), data, nullptr),
     "gang.all_reduce: the output is null, but 4 f32 are wanted"},
    {with(record(Op::all_gather, 2), data, nullptr),
     "gang.all_gather: the output is null, but 8 f32 are wanted"},
    {with(record(Op::reduce_scatter, 2, Reduce::sum), nullptr, data),
     "gang.reduce_scatter: the input is null, but 8 f32 are wanted"},
    {with(record(Op::gather, 2, Reduce::none, 1), data, nullptr),
     "gang.gather: the output is null, but 8 f32 are wanted"},
    {with(record(Op::scatter, 2, Reduce::none, 1), nullptr, data),
     "gang.scatter: the input is null, but 8 f32 are wanted"},
    {with(record(Op::send, 2, Reduce::none, 1), nullptr, nullptr),
     "gang.send: the input is null, but 2 f32 are wanted"},
    {with(record(Op::recv, 2, Reduce::none, 1), nullptr, nullptr),
     "gang.recv: the output is null, but 2 f32 are wanted"},
    // Overlap.
    {with(record(Op::all_reduce, 4, Reduce::sum), data, data + 1),
     "gang.all_reduce: the output starts 4 bytes from the input and overlaps it in another way than the "
     "in-place form"},
    {with(record(Op::broadcast, 4, Reduce::none, 1), data + 3, data),
     "gang.broadcast: the output starts -12 bytes from the input and overlaps it in another way than the "
     "in-place form"},
    {with(record(Op::all_gather, 4), data, data),
     "gang.all_gather: the output starts 0 bytes from the input and overlaps it in another way than the "
     "in-place form"},
    {with(record(Op::reduce_scatter, 4, Reduce::sum), data, data),
     "gang.reduce_scatter: the output starts 0 bytes from the input and overlaps it in another way than the "
     "in-place "
     "form"},
    {with_counts(with(record(Op::all_gather, 0), data + 2, data), sizes),
     "gang.all_gather: the output starts -8 bytes from the input and overlaps it in another way than the "
     "in-place form"},
    {with(record(Op::all_to_all, 4), data, data),
     "gang.all_to_all: has no in-place form; the output starts 0 bytes from the input and overlaps it"},
    {accumulating(with(record(Op::all_reduce, 4, Reduce::sum), data, data)),
     "gang.all_reduce: an accumulating call needs an output apart from its input"},
    // The fake gang's own.
    {record(Op::broadcast, 4, Reduce::none, 2),
     "gang.broadcast: the source of a fake gang must be its own rank 1, but is 2"},
    {record(Op::scatter, 4, Reduce::none, 0),
     "gang.scatter: the source of a fake gang must be its own rank 1, but is 0"},
};

TEST(GangChecks, EveryRefusalHasItsCodeAndText) {
  const GangPtr gang = fake(1, 4);
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    expect_error(Code::invalid_argument, refusal.text,
                 [&] { gang->run(Channel::user, std::span<const Collective>(&refusal.record, 1)); });
    EXPECT_FALSE(gang->error().has_value());
  }
}

TEST(GangChecks, ARefusalNamesGangOpRankAndPeer) {
  const GangPtr gang = fake(1, 4);
  const Error error = error_of([&] { gang->run(Channel::user, record(Op::broadcast, 4, Reduce::none, 9)); });
  EXPECT_EQ(error.gang, "gang");
  EXPECT_EQ(error.op, "broadcast");
  EXPECT_EQ(error.rank, 1);
  EXPECT_EQ(error.peer, 9);
}

TEST(GangChecks, InPlaceFormsAreTaken) {
  const GangPtr gang = fake(1, 4);
  for (const Collective& c :
       {with(record(Op::all_reduce, 4, Reduce::sum), data, data),
        with(record(Op::reduce, 4, Reduce::sum, 1), data, data),
        with(record(Op::broadcast, 4, Reduce::none, 1), data, data),
        with(record(Op::all_gather, 4), data + 4, data),
        with(record(Op::gather, 4, Reduce::none, 1), data + 4, data),
        with(record(Op::reduce_scatter, 4, Reduce::sum), data, data + 4),
        with(record(Op::scatter, 4, Reduce::none, 1), data, data + 4),
        with_counts(with(record(Op::reduce_scatter, 0, Reduce::sum), data, data + 1), sizes)})
    EXPECT_NO_THROW(gang->run_now(Channel::user, c)) << name(c.op);
}

TEST(GangChecks, NullBuffersOfNothingAreTaken) {
  const GangPtr gang = fake(0, 4);
  for (const Op op : {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::broadcast, Op::reduce,
                      Op::gather, Op::scatter, Op::all_to_all, Op::send, Op::recv}) {
    const bool reduces = op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce;
    EXPECT_NO_THROW(gang->run_now(
        Channel::user, with(record(op, 0, reduces ? Reduce::sum : Reduce::none, 0), nullptr, nullptr)))
        << name(op);
  }
  EXPECT_NO_THROW(gang->run_now(Channel::user, with(record(Op::reduce, 4, Reduce::sum, 2), data, nullptr)));
}

TEST(GangChecks, OneBadRecordOfABatchStopsTheBatch) {
  const GangPtr gang = fake(0, 2);
  float x = 1, y = 0;
  Collective good = with(record(Op::all_reduce, 1, Reduce::sum), &x, &y);
  const Collective batch[] = {good, record(Op::send, 1, Reduce::none, 2)};
  expect_error(Code::invalid_argument, "gang.send: peer rank 2 is outside [0, 2)",
               [&] { gang->run(Channel::user, batch); });
  EXPECT_EQ(y, 0);
}

TEST(GangChecks, AStreamOfAnotherDeviceIsRefused) {
  const GangPtr gang = fake(0, 2);
  const std::shared_ptr<Device> meta = make_device("meta");
  expect_error(Code::invalid_argument, "gang.barrier: the stream is of device meta, but the gang of cpu",
               [&] { gang->run(Channel::user, Collective{}, &meta->stream()); });
}

TEST(GangCreation, TheListIsRefusedInOrder) {
  const GangPtr gang = fake(0, 4);
  const auto make = [&](std::vector<int> ranks) { return [&, ranks] { gang->create_gang(ranks); }; };
  expect_error(Code::invalid_argument, "gang.create_gang: rank 9 stands twice in [4, 9, 9]", make({4, 9, 9}));
  expect_error(Code::invalid_argument, "gang.create_gang: rank 4 is outside [0, 4)", make({0, 4, 7}));
  expect_error(Code::invalid_argument, "gang.create_gang: rank -1 is outside [0, 4)", make({-1}));
  expect_error(Code::invalid_argument, "gang.create_gang: the list of ranks is empty", make({}));
  EXPECT_FALSE(gang->error().has_value());
}

TEST(GangCreation, TheOrderOfTheListIsTheOrderOfRanks) {
  const GangPtr gang = fake(2, 8);
  const GangPtr child = gang->create_gang(std::vector<int>{6, 2, 0});
  EXPECT_EQ(child->rank(), 1);
  EXPECT_EQ(child->size(), 3);
  EXPECT_EQ(child->members(), (std::vector<int>{6, 2, 0}));
  const GangPtr grandchild = child->create_gang(std::vector<int>{1, 0}, "pair");
  EXPECT_EQ(grandchild->members(), (std::vector<int>{2, 6}));
  EXPECT_EQ(grandchild->name(), "pair");
  EXPECT_EQ(gang->create_gang(std::vector<int>{1, 3}), nullptr);
}

TEST(GangCreation, FakeRefusesSizeThenRankThenMeta) {
  GangOptions meta;
  meta.device = "meta";
  expect_error(Code::invalid_argument, "gang.create_fake: size is 0, below 1",
               [&] { Gang::create_fake(5, 0, meta, false); });
  expect_error(Code::invalid_argument, "gang.create_fake: rank 4 is outside [0, 4)",
               [&] { Gang::create_fake(4, 4, meta, false); });
  expect_error(Code::invalid_argument, "gang.create_fake: a fake gang needs a device with memory, not meta",
               [&] { Gang::create_fake(3, 4, meta, false); });
  EXPECT_EQ(Gang::create_fake(3, 4, meta, true, /*refuse_meta=*/false)->size(), 4);
}

TEST(GangCreation, OptionsAreRefusedWithTheirNumbers) {
  const auto create = [](GangOptions options) { return [options] { Gang::create(options); }; };
  GangOptions o;
  o.rank = 0;
  o.size = 1;
  GangOptions bad = o;
  bad.size = 0;
  expect_error(Code::invalid_argument, "gang.create: size is 0, below 1", create(bad));
  bad.rank = 2;
  bad.size = 2;
  expect_error(Code::invalid_argument, "gang.create: rank 2 is outside [0, 2)", create(bad));
  bad.rank = -1;
  expect_error(Code::invalid_argument, "gang.create: rank -1 is outside [0, 2)", create(bad));
  bad.rank = 1;
  expect_error(Code::invalid_argument, "gang.create: rank 1 of 2 was given without a store to meet at",
               create(bad));
  bad = o;
  bad.expected_size = 2;
  expect_error(Code::invalid_argument,
               "expected_size is 2, but the environment gives 1 rank (launcher: options)", create(bad));
  bad = o;
  bad.timeout_ms = -1;
  expect_error(Code::invalid_argument, "gang.create: timeout_ms is -1, below 0", create(bad));
  bad.timeout_ms = INT64_MAX;
  expect_error(Code::invalid_argument, "gang.create: timeout_ms is 9223372036854775807, above 9223372036854",
               create(bad));
  bad = o;
  bad.liveness_ms = 49;
  expect_error(Code::invalid_argument, "gang.create: liveness_ms is 49, neither 0 (off) nor at least 50",
               create(bad));
  bad.liveness_ms = 50;
  EXPECT_EQ(error_of(create(bad)).code(), Code::ok);
  bad = o;
  bad.device = "tpu";
  expect_error(Code::invalid_argument, "device \"tpu\" is unknown (cpu, cuda, meta)", create(bad));
  bad = o;
  bad.device = "cuda";
  EXPECT_EQ(error_of(create(bad)).code(), Code::not_supported);
}

TEST(GangCreation, NcclIsNotChosenByName) {
  GangOptions o;
  o.rank = 0;
  o.size = 1;
  o.engine = "nccl";
  expect_error(Code::not_supported,
               "engine \"nccl\" is not chosen by name: gangs of device \"cuda\" have it (engine \"auto\")",
               [&] { Gang::create(o); });
  o.engine = "best";
  expect_error(Code::invalid_argument,
               "engine \"best\" is unknown (auto, self, fake, host, network, mpi, threads)",
               [&] { Gang::create(o); });
  o.engine = "self";
  o.size = 2;
  o.store = make_memory_store();
  expect_error(Code::invalid_argument, "engine \"self\" holds one rank, but the gang has 2",
               [&] { Gang::create(o); });
  expect_error(Code::invalid_argument, "gang.create_threads: count is 0, below 1",
               [&] { Gang::create_threads(0, GangOptions{}); });
  expect_error(Code::invalid_argument,
               "gang.create_threads: engine \"self\" does not hold ranks that are threads (auto, threads)",
               [&] { Gang::create_threads(1, o); });
  o.engine = "auto";
  o.device = "meta";
  expect_error(
      Code::invalid_argument,
      "gang.create: device meta has no memory to move, but the gang has 2 ranks (a fake gang can stand for "
      "them)",
      [&] { Gang::create(o); });
}

TEST(GangCreation, AGangOfOneIsTheSelfEngineWhateverWasAsked) {
  for (const char* engine : {"auto", "self", "host"}) {
    GangOptions o;
    o.rank = 0;
    o.size = 1;
    o.engine = engine;
    const GangPtr gang = Gang::create(o);
    EXPECT_STREQ(gang->engine_name(), "self");
    EXPECT_EQ(gang->rank(), 0);
    EXPECT_EQ(gang->size(), 1);
    EXPECT_STREQ(gang->duplicate()->engine_name(), "self");
  }
  EXPECT_STREQ(Gang::create_threads(1, GangOptions{})[0]->engine_name(), "self");
  GangOptions o;
  o.rank = 1;
  o.size = 3;
  o.engine = "fake";
  const GangPtr gang = Gang::create(o);
  EXPECT_STREQ(gang->engine_name(), "fake");
  EXPECT_EQ(gang->rank(), 1);
}

TEST(GangState, ABrokenGangTellsItsFirstErrorAtEveryCall) {
  const GangPtr gang = fake(1, 4);
  const GangPtr twin = gang->duplicate();
  gang->abort("no more");
  gang->abort("and again");
  const std::string first = "gang: aborted by rank 1: no more";
  EXPECT_EQ(gang->error()->message(), first);
  expect_error(Code::aborted, first, [&] { gang->barrier(); });
  expect_error(Code::aborted, first,
               [&] { gang->run(Channel::user, record(Op::broadcast, 4, Reduce::none, 9)); });
  expect_error(Code::aborted, first, [&] { gang->create_gang(std::vector<int>{0}); });
  expect_error(Code::aborted, first, [&] { gang->split(0, 0); });
  expect_error(Code::aborted, first, [&] { gang->duplicate(); });
  expect_error(Code::aborted, first, [&] { gang->alone(); });
  expect_error(Code::aborted, first, [&] { gang->agreement().agree(std::nullopt); });
  expect_error(Code::aborted, first, [&] { gang->allocate_shared(64); });
  expect_error(Code::aborted, first, [&] { gang->agreement().all_gather_bytes(Channel::user, "x"); });
  expect_error(Code::aborted, first, [&] { gang->shutdown(1000); });
  EXPECT_NO_THROW(twin->barrier());
}

TEST(GangState, AfterShutdownEveryCallIsRefused) {
  const GangPtr gang = fake(0, 2);
  const GangPtr twin = gang->duplicate();
  gang->shutdown(1000);
  expect_error(Code::invalid_state, "gang.all_reduce: gang \"gang\" was shut down",
               [&] { gang->run(Channel::user, record(Op::all_reduce, 1, Reduce::sum)); });
  expect_error(Code::invalid_state, "gang.barrier: gang \"gang\" was shut down", [&] { gang->barrier(); });
  expect_error(Code::invalid_state, "gang.shutdown: gang \"gang\" was shut down",
               [&] { gang->shutdown(1000); });
  expect_error(Code::invalid_state, "gang.create_gang: gang \"gang\" was shut down",
               [&] { gang->create_gang(std::vector<int>{0}); });
  EXPECT_NO_THROW(twin->barrier());
}

TEST(GangState, ShrinkNeedsABrokenGangAndTheCaller) {
  const GangPtr gang = fake(1, 4);
  expect_error(Code::invalid_state, "gang.shrink: gang \"gang\" is not broken", [&] {
    gang->shrink(std::vector<int>{0, 1});
  });
  gang->abort("rank 3 is gone");
  expect_error(Code::invalid_argument, "gang.shrink: rank 1, which calls, is not in [0, 2]", [&] {
    gang->shrink(std::vector<int>{0, 2});
  });
  expect_error(Code::invalid_argument, "gang.shrink: rank 5 is outside [0, 4)", [&] {
    gang->shrink(std::vector<int>{1, 5});
  });
  const GangPtr rest = gang->shrink(std::vector<int>{0, 1, 2});
  EXPECT_EQ(rest->size(), 3);
  EXPECT_NO_THROW(rest->barrier());
}

TEST(GangState, ChildrenOutliveTheirParent) {
  GangPtr gang = fake(0, 4);
  const GangPtr child = gang->create_gang(std::vector<int>{0, 2});
  const std::shared_ptr<Buffer> buffer = Buffer::allocate(gang->allocator(), 64);
  gang.reset();
  EXPECT_EQ(child->agreement().all_sum(Channel::user, 2), 4);
}

TEST(GangState, ARefusalIsThrownByAgree) {
  const GangPtr gang = fake(0, 1);
  const Error error = error_of([&] {
    gang->agreement().agree_on([] { fail(Code::not_supported, "tp is 2, but this version has tp 1 only"); });
  });
  EXPECT_EQ(error.code(), Code::not_supported);
  EXPECT_EQ(error.message(), "tp is 2, but this version has tp 1 only");
  EXPECT_EQ(error.rank, 0);
  EXPECT_NO_THROW(gang->agreement().agree(std::nullopt));
}

TEST(GangState, CallsInAForkedChildAreRefused) {
  const GangPtr gang = fake(0, 1);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const bool refused = forked_child() && error_of([&] { gang->barrier(); }).code() == Code::forked &&
                         error_of([&] { gang->duplicate(); }).code() == Code::forked &&
                         error_of([&] { gang->abort("x"); }).code() == Code::forked &&
                         error_of([] { Gang::create(GangOptions{}); }).code() == Code::forked;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_NO_THROW(gang->barrier());
}

class CountedWork : public Progressive {
 public:
  CountedWork(int turns, std::vector<int>* log, int id) : turns_(turns), log_(log), id_(id) {}
  bool progress() override {
    log_->push_back(id_);
    return --turns_ == 0;
  }

 private:
  int turns_;
  std::vector<int>* log_;
  int id_;
};

TEST(RankWorks, AreDrivenInOrderAndDroppedWhenFinished) {
  Works works;
  std::vector<int> log;
  works.add(std::make_shared<CountedWork>(2, &log, 1));
  works.add(std::make_shared<CountedWork>(1, &log, 2));
  works.add(std::make_shared<CountedWork>(3, &log, 3));
  for (int i = 0; i < 4; ++i) works.progress();
  EXPECT_EQ(log, (std::vector<int>{1, 2, 3, 1, 3, 3}));
}

}  // namespace
}  // namespace gangway
