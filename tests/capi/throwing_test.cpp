// A C++ exception in a callback becomes a status and a text, on its own rank and on the ranks that wait for
// it.
#include <gangway/gangway.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "small.h"

namespace {

void count(void* user) { ++*static_cast<int*>(user); }
gw_status ok_call(void*, gw_call*) { return GW_OK; }

struct Thrown {
  int kind;
  gw_status code;
  const char* text;
};
constexpr std::array<Thrown, 3> kThrown = {{{1, GW_E_OUT_OF_MEMORY, "no memory"},
                                            {2, GW_E_INTERNAL, "thrown on purpose"},
                                            {3, GW_E_INTERNAL, "unknown exception"}}};
void throw_one(int kind) {
  switch (kind) {
    case 1: throw std::bad_alloc();
    case 2: throw std::runtime_error("thrown on purpose");
    case 3: throw 3;
    default: break;
  }
}

std::vector<gw_gang*> thread_gangs(int ranks) {
  auto options = with(gw_gang_options_init);
  options.timeout_ms = 10000;
  options.threads = 1;
  options.arena_bytes = uint64_t{1} << 32;
  std::vector<gw_gang*> gangs(static_cast<size_t>(ranks));
  EXPECT_EQ(gw_gang_create_threads(ranks, &options, gangs.data()), GW_OK) << last_error().message;
  return gangs;
}

// --- custom modules

enum class At { forward, backward_input, backward_weight };
constexpr At kAt[] = {At::forward, At::backward_input, At::backward_weight};
constexpr const char* kNames[] = {"forward", "backward_input", "backward_weight"};

// Throws in one callback; kind 0 throws nothing.
struct Thrower {
  int kind = 0;
  At at = At::forward;
  void pass(At here) const {
    if (here == at) throw_one(kind);
  }
};

gw_status throwing_forward(void* user, gw_call* call) {
  static_cast<Thrower*>(user)->pass(At::forward);
  *static_cast<double*>(call->outputs[0].data) = *static_cast<const float*>(call->parameters[0].data);
  *static_cast<double*>(call->outputs[1].data) = 1;
  return GW_OK;
}
gw_status loss_shapes(void*, gw_call* call) {
  for (int i = 0; i < 2; ++i) {
    call->outputs[i].ndim = 1;
    call->outputs[i].dtype = GW_F64;
    const_cast<int64_t*>(call->outputs[i].shape)[0] = 1;
  }
  return GW_OK;
}
gw_status throwing_backward_input(void* user, gw_call*) {
  static_cast<Thrower*>(user)->pass(At::backward_input);
  return GW_OK;
}
gw_status add_seed(void* user, gw_call* call) {
  static_cast<Thrower*>(user)->pass(At::backward_weight);
  *static_cast<float*>(call->parameter_grads[0].data) += static_cast<float>(call->loss_scale);
  return GW_OK;
}

gw_module* throwing_module(Thrower* thrower) {
  auto p = with(gw_parameter_options_init);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 1;
  auto c = with(gw_custom_options_init);
  c.name = "thrower";
  c.shapes = loss_shapes;
  c.forward = throwing_forward;
  c.backward_input = throwing_backward_input;
  c.backward_weight = add_seed;
  c.user = thrower;
  c.output_count = 2;
  c.parameters = &p;
  c.parameter_count = 1;
  gw_module* model = nullptr;
  EXPECT_EQ(gw_custom_create(&c, &model), GW_OK) << last_error().message;
  return model;
}

struct Outcome {
  gw_status set_up = GW_E_INTERNAL, first = GW_E_INTERNAL, second = GW_E_INTERNAL;
  std::string text;
};

// The model of one rank, and what it needs for a step.
struct Trainee {
  Thrower thrower;
  gw_module* model = throwing_module(&thrower);
  gw_gangs* gangs = nullptr;
  gw_optimizer* optimizer = nullptr;
  gw_frame* frame = nullptr;
  float x = 1;
  int64_t shape[1] = {1};
  gw_view view{};

  explicit Trainee(gw_gang* gang, Outcome& outcome) {
    gw_view_set(&view, &x, shape, 1, GW_F32);
    outcome.set_up = gw_gangs_create(gang, nullptr, &gangs);
    if (outcome.set_up == GW_OK) outcome.set_up = gw_parallelize(model, gangs, nullptr);
    if (outcome.set_up == GW_OK) outcome.set_up = gw_sgd_create(model, nullptr, &optimizer);
    if (outcome.set_up == GW_OK) outcome.set_up = gw_frame_create(model, nullptr, &frame);
    outcome.text = last_error().message;
  }
  ~Trainee() {
    gw_frame_release(frame);
    gw_optimizer_release(optimizer);
    gw_module_release(model);
    gw_gangs_release(gangs);
  }
  Trainee(const Trainee&) = delete;
  Trainee& operator=(const Trainee&) = delete;

  gw_status step(bool manual) const {
    auto batch = with(gw_batch_init);
    batch.inputs = &view;
    batch.input_count = 1;
    batch.weight = 1;
    if (!manual) return gw_train_step(model, optimizer, &batch, nullptr, nullptr, nullptr);
    gw_tensor* outputs[2] = {};
    size_t written = 0;
    gw_status status = gw_module_forward(model, &view, 1, frame, nullptr, outputs, 2, &written);
    for (gw_tensor* output : outputs) gw_tensor_release(output);
    gw_tensor* grad = nullptr;
    if (status == GW_OK) status = gw_module_backward(model, nullptr, 0, frame, nullptr, &grad, 1, &written);
    gw_tensor_release(grad);
    return status == GW_OK ? gw_optimizer_step(optimizer, nullptr, nullptr, nullptr) : status;
  }
};

// Trains one good step, and one in which the callback of rank 0 throws.
Outcome train(gw_gang* gang, const Thrower& thrower, bool manual) {
  Outcome outcome;
  Trainee trainee(gang, outcome);
  if (outcome.set_up != GW_OK) return outcome;
  outcome.first = trainee.step(manual);
  outcome.text = last_error().message;
  if (outcome.first != GW_OK) return outcome;
  if (gw_gang_rank(gang) == 0) trainee.thrower = thrower;
  outcome.second = trainee.step(manual);
  outcome.text = last_error().message;
  return outcome;
}

void expect_to_reach_every_rank(int ranks, const Thrown& thrown, At at, bool manual) {
  SCOPED_TRACE(std::string(kNames[static_cast<int>(at)]) + (manual ? " manual, " : ", ") +
               std::to_string(ranks) + " ranks, kind " + std::to_string(thrown.kind));
  const std::vector<gw_gang*> gangs = thread_gangs(ranks);
  std::vector<Outcome> outcomes(gangs.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < gangs.size(); ++r)
    threads.emplace_back([&, r] { outcomes[r] = train(gangs[r], Thrower{thrown.kind, at}, manual); });
  for (std::thread& thread : threads) thread.join();
  for (size_t r = 0; r < gangs.size(); ++r) {
    const Outcome& o = outcomes[r];
    EXPECT_EQ(o.set_up, GW_OK) << o.text;
    EXPECT_EQ(o.first, GW_OK) << o.text;
    EXPECT_EQ(o.second, r == 0 ? thrown.code : GW_E_ABORTED) << "rank " << r << ": " << o.text;
    for (const char* words : {kNames[static_cast<int>(at)], thrown.text})
      EXPECT_NE(o.text.find(words), std::string::npos) << "rank " << r << ": " << o.text;
    gw_gang_release(gangs[r]);
  }
}

TEST(Throwing, ACustomModulesExceptionReachesEveryRank) {
  for (const Thrown& thrown : kThrown)
    for (const At at : kAt)
      for (const int ranks : {1, 2, 3}) expect_to_reach_every_rank(ranks, thrown, at, ranks == 2);
}

// gw_parallelize asks the callback in its check phase.
TEST(Throwing, AnExceptionOfAcceptsDtypeIsARefusalOnEveryRank) {
  const std::vector<gw_gang*> gangs = thread_gangs(2);
  Outcome outcomes[2];
  const auto run = [&](size_t rank) {
    gw_custom_options c;
    gw_custom_options_init(&c, sizeof c);
    c.name = "thrower";
    c.shapes = c.forward = c.backward_input = ok_call;
    c.accepts_dtype = [](void* user, gw_dtype) -> int32_t {
      if (*static_cast<size_t*>(user) == 1) throw 3;
      return 1;
    };
    c.user = &rank;
    gw_module* model = nullptr;
    gw_gangs* mesh = nullptr;
    gw_parallel_options p;
    gw_shard_options s;
    gw_parallel_options_init(&p, sizeof p);
    gw_shard_options_init(&s, sizeof s);
    p.shard = &s;
    s.param_dtype = GW_BF16;
    EXPECT_EQ(gw_custom_create(&c, &model), GW_OK);
    outcomes[rank].set_up = gw_gangs_create(gangs[rank], nullptr, &mesh);
    outcomes[rank].first = gw_parallelize(model, mesh, &p);
    outcomes[rank].text = last_error().message;
    outcomes[rank].second = gw_gang_barrier(gangs[rank], nullptr);
    gw_module_release(model);
    gw_gangs_release(mesh);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(outcomes[r].set_up, GW_OK);
    EXPECT_EQ(outcomes[r].first, GW_E_INTERNAL) << outcomes[r].text;
    EXPECT_NE(outcomes[r].text.find("accepts_dtype"), std::string::npos) << outcomes[r].text;
    EXPECT_EQ(outcomes[r].second, GW_OK);  // the gang goes on working
    gw_gang_release(gangs[r]);
  }
}

// All ranks agree on the refusal if a fill function throws on one rank.
TEST(Throwing, AnInitialisersExceptionIsARefusalOnEveryRank) {
  const std::vector<gw_gang*> gangs = thread_gangs(2);
  Outcome outcomes[2];
  int freed[2] = {0, 0};
  const auto run = [&](size_t rank) {
    gw_init_options init;
    gw_init_options_init(&init, sizeof init);
    init.kind = GW_INIT_FILL;
    init.fill = [](void*, int64_t, int64_t last, void*, size_t, gw_dtype) -> gw_status {
      if (last == 2) throw std::runtime_error("no numbers here");  // rank 1 has the last row
      return GW_OK;
    };
    init.user = &freed[rank];
    init.free_user = count;
    gw_parameter_options p;
    gw_parameter_options_init(&p, sizeof p);
    p.name = "w";
    p.ndim = 1;
    p.dims[0] = 2;
    p.initializer = &init;
    gw_gangs* mesh = nullptr;
    gw_shard_group* group = nullptr;
    outcomes[rank].set_up = gw_gangs_create(gangs[rank], nullptr, &mesh);
    outcomes[rank].first = gw_shard_group_create(mesh, "g", &p, 1, nullptr, 0, &group);
    outcomes[rank].text = last_error().message;
    outcomes[rank].second = gw_gang_barrier(gangs[rank], nullptr);
    gw_gangs_release(mesh);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(outcomes[r].set_up, GW_OK);
    EXPECT_EQ(outcomes[r].first, GW_E_INTERNAL);
    EXPECT_NE(outcomes[r].text.find("no numbers here"), std::string::npos) << outcomes[r].text;
    EXPECT_EQ(outcomes[r].second, GW_OK);  // the gang goes on working
    EXPECT_EQ(freed[r], 1);
    gw_gang_release(gangs[r]);
  }
}

// --- stores and allocators

// A store whose put of keys that begin with `of` throws `times` times on the rank that owns it.
struct ThrowingStore {
  std::mutex* lock;
  std::map<std::string, std::string>* values;
  int kind = 0, times = 0;
  const char* of = "";
};

gw_store* store_of(ThrowingStore& own) {
  auto c = with(gw_store_callbacks_init);
  c.put = [](void* user, const char* key, const void* value, size_t size) -> gw_status {
    ThrowingStore& s = *static_cast<ThrowingStore*>(user);
    if (std::string(key).starts_with(s.of) && s.times-- > 0) throw_one(s.kind);
    const std::lock_guard guard(*s.lock);
    (*s.values)[key] = std::string(static_cast<const char*>(value), size);
    return GW_OK;
  };
  c.get = [](void* user, const char* key, void* value, size_t capacity, int64_t* out_size) -> gw_status {
    const ThrowingStore& s = *static_cast<ThrowingStore*>(user);
    const std::lock_guard guard(*s.lock);
    const auto found = s.values->find(key);
    *out_size = found == s.values->end() ? -1 : static_cast<int64_t>(found->second.size());
    if (*out_size >= 0) found->second.copy(static_cast<char*>(value), capacity);
    return GW_OK;
  };
  c.remove = [](void* user, const char* key) -> gw_status {
    const ThrowingStore& s = *static_cast<ThrowingStore*>(user);
    const std::lock_guard guard(*s.lock);
    s.values->erase(key);
    return GW_OK;
  };
  c.user = &own;
  gw_store* store = nullptr;
  EXPECT_EQ(gw_store_create_callbacks(&c, &store), GW_OK) << last_error().message;
  return store;
}

// Rank 1's first put throws, and rank 1 reports that to rank 0 with its second put: while the ranks tell each
// other their places ("network/"), and while ranks of one host hand over their memory ("host/").
void report_of_an_exception(const char* of, gw_status told_code, const char* told_text) {
  for (const Thrown& thrown : kThrown) {
    std::mutex lock;
    std::map<std::string, std::string> values;
    ThrowingStore own[2] = {{&lock, &values}, {&lock, &values, thrown.kind, 1, of}};
    gw_status status[2] = {};
    std::string text[2];
    const auto join = [&](int32_t rank) {
      gw_store* const store = store_of(own[rank]);
      auto o = with(gw_gang_options_init);
      o.rank = rank;
      o.size = 2;
      o.store = store;
      o.timeout_ms = 10000;
      o.threads = 1;
      o.arena_bytes = uint64_t{1} << 30;
      gw_gang* gang = nullptr;
      status[rank] = gw_gang_create(&o, &gang);
      text[rank] = last_error().message;
      gw_gang_release(gang);
      gw_store_release(store);
    };
    std::thread other(join, 1);
    join(0);
    other.join();
    EXPECT_EQ(status[1], thrown.code) << text[1];
    EXPECT_EQ(status[0], told_code) << text[0];
    EXPECT_TRUE(std::regex_search(text[0], std::regex(told_text))) << text[0];
    for (const std::string& told : text)
      for (const char* words : {"the caller's store: its put callback ", thrown.text})
        EXPECT_NE(told.find(words), std::string::npos) << told;
  }
}

TEST(Throwing, AStoresExceptionIsReportedToTheOtherRank) {
  report_of_an_exception("network/", GW_E_GANG, "rank 1 on .* failed: ");
  report_of_an_exception("host/", GW_E_ABORTED, "rank 1 gave up");
}

std::atomic<int> throws_now{0};

TEST(Throwing, AnAllocatorsExceptionIsAnErrorAndTheNextCallWorks) {
  auto a = with(gw_allocator_init);
  a.allocate = [](void*, size_t bytes, size_t alignment) -> void* {
    throw_one(throws_now.load());
    return std::aligned_alloc(alignment, bytes);
  };
  a.deallocate = [](void*, void* data, size_t) {
    std::free(data);
    throw_one(throws_now.load());
  };
  ASSERT_EQ(gw_allocator_set(&a), GW_OK);
  for (const Thrown& thrown : kThrown) {
    const gw_decoder_options o = small_llama();
    gw_module *model = nullptr, *other = nullptr;
    ASSERT_EQ(gw_decoder_create(&o, &model), GW_OK);
    ASSERT_EQ(gw_decoder_create(&o, &other), GW_OK);
    throws_now = thrown.kind;
    EXPECT_EQ(gw_module_materialize(model, nullptr, 1, GW_F32), thrown.code);
    const std::string text = last_error().message;
    for (const char* words : {"the caller's allocator: its allocate callback ", thrown.text})
      EXPECT_NE(text.find(words), std::string::npos) << text;
    throws_now = 0;
    EXPECT_EQ(gw_module_materialize(other, nullptr, 1, GW_F32), GW_OK) << last_error().message;
    throws_now = thrown.kind;
    gw_module_release(other);  // frees each block, which throws
    throws_now = 0;
    gw_module_release(model);
  }
  EXPECT_EQ(gw_allocator_set(nullptr), GW_OK);
}

}  // namespace
