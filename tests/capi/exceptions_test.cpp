// Nothing escapes: a fault in any entry, or a C++ exception of a callback, becomes a status and a text.
#include <gangway/gangway.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

#include "facts.h"
#include "internal.h"
#include "small.h"

namespace {

// Calls with null and zero for every argument: the fault comes before they are looked at.
template <typename... Arguments>
gw_status call_with_nothing(gw_status (*entry)(Arguments...)) {
  return std::apply(entry, std::tuple<Arguments...>{});
}

struct Fault {
  int kind;
  gw_status code;
  const char* text;
};
constexpr std::array<Fault, 3> kFaults = {{{1, GW_E_OUT_OF_MEMORY, "no memory"},
                                           {2, GW_E_INTERNAL, "armed fault"},
                                           {3, GW_E_INTERNAL, "unknown exception"}}};

template <typename... Arguments>
int check(const char* name, gw_status (*entry)(Arguments...)) {
  for (const Fault& fault : kFaults) {
    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(call_with_nothing(entry), fault.code) << name << ", fault " << fault.kind;
    EXPECT_EQ(last_error().code, fault.code) << name;
    EXPECT_NE(std::string(last_error().message).find(fault.text), std::string::npos)
        << name << ": " << last_error().message;
    gangway::capi::arm_fault(0);
  }
  return 1;
}

// Entries that return something else, and facts that are int32_t too, cannot say that they failed: they hold
// no code that throws, so the fault stays armed, or they swallow it.
template <typename Result, typename... Arguments>
int check_nothing_escapes(const char* name, Result (*entry)(Arguments...)) {
  for (const Fault& fault : kFaults) {
    gangway::capi::arm_fault(fault.kind);
    try {
      std::apply(entry, std::tuple<Arguments...>{});
    } catch (...) {
      ADD_FAILURE() << name << " let fault " << fault.kind << " escape";
    }
    gangway::capi::arm_fault(0);
  }
  return 1;
}

template <typename Result, typename... Arguments>
int check_entry(const char* name, Result (*entry)(Arguments...)) {
  const bool fact = kFacts.count(name) != 0 || std::string(name) == "gw_last_error";
  if constexpr (std::is_same_v<Result, gw_status>)
    return fact ? check_nothing_escapes(name, entry) : check(name, entry);
  else
    return check_nothing_escapes(name, entry);
}

TEST(Exceptions, NoEntryLetsAFaultEscape) {
  int checked = 0, listed = 0;
#define ENTRY(name) ++listed, checked += check_entry(#name, name);
#include "entries.inc"
#undef ENTRY
  EXPECT_EQ(checked, listed);
  EXPECT_GT(checked, 190);
}

void count(void* user) { ++*static_cast<int*>(user); }
gw_status ok_call(void*, gw_call*) { return GW_OK; }

TEST(Exceptions, FreeFunctionsRunOnceAfterAFault) {
  for (const Fault& fault : kFaults) {
    int freed = 0;
    gw_store_callbacks s;
    gw_store_callbacks_init(&s, sizeof s);
    s.put = [](void*, const char*, const void*, size_t) -> gw_status { return GW_OK; };
    s.get = [](void*, const char*, void*, size_t, int64_t*) -> gw_status { return GW_OK; };
    s.remove = [](void*, const char*) -> gw_status { return GW_OK; };
    s.user = &freed;
    s.free_user = count;
    gw_store* store = nullptr;
    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(gw_store_create_callbacks(&s, &store), fault.code);
    EXPECT_EQ(freed, 1);

    gw_allocator a;
    gw_allocator_init(&a, sizeof a);
    a.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
    a.deallocate = [](void*, void*, size_t) {};
    a.user = &freed;
    a.free_user = count;
    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(gw_allocator_set(&a), fault.code);
    EXPECT_EQ(std::exchange(freed, 1), 2);

    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(gw_interrupt_set([](void*) -> int32_t { return 0; }, &freed, count), fault.code);
    EXPECT_EQ(freed, 2);

    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(gw_work_attach(nullptr, &freed, count), fault.code);
    EXPECT_EQ(freed, 3);

    gw_init_options init;
    gw_init_options_init(&init, sizeof init);
    init.kind = GW_INIT_FILL;
    init.fill = [](void*, int64_t, int64_t, void*, size_t, gw_dtype) -> gw_status { return GW_OK; };
    init.user = &freed;
    init.free_user = count;
    gw_parameter_options p;
    gw_parameter_options_init(&p, sizeof p);
    p.name = "w";
    p.ndim = 1;
    p.dims[0] = 3;
    p.initializer = &init;
    gw_custom_options c;
    gw_custom_options_init(&c, sizeof c);
    c.shapes = c.forward = c.backward_input = ok_call;
    c.user = &freed;
    c.free_user = count;
    c.parameters = &p;
    c.parameter_count = 1;
    gw_module* model = nullptr;
    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(gw_custom_create(&c, &model), fault.code);
    EXPECT_EQ(freed, 5);  // the module's and the initialiser's

    gw_shard_group* group = nullptr;
    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(gw_shard_group_create(nullptr, "g", &p, 1, nullptr, 0, &group), fault.code);
    EXPECT_EQ(freed, 6);
  }
}

// --- callbacks that throw

// What the forward callback throws: 0 nothing, then as kFaults.
gw_status throwing_forward(void* user, gw_call* call) {
  switch (*static_cast<int*>(user)) {
    case 1: throw std::bad_alloc();
    case 2: throw std::runtime_error("armed fault");
    case 3: throw 3;
    default: break;
  }
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
gw_status add_seed(void*, gw_call* call) {
  *static_cast<float*>(call->parameter_grads[0].data) += static_cast<float>(call->loss_scale);
  return GW_OK;
}

gw_module* throwing_module(int* what) {
  gw_parameter_options p;
  gw_parameter_options_init(&p, sizeof p);
  p.name = "w";
  p.ndim = 1;
  p.dims[0] = 1;
  gw_custom_options c;
  gw_custom_options_init(&c, sizeof c);
  c.name = "thrower";
  c.shapes = loss_shapes;
  c.forward = throwing_forward;
  c.backward_input = add_seed;
  c.user = what;
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

// One good step, then one in which rank 0's callback throws.
void run_rank(gw_gang* gang, int kind, Outcome* outcome) {
  int what = 0;
  gw_gangs* gangs = nullptr;
  gw_optimizer* opt = nullptr;
  gw_module* model = throwing_module(&what);
  outcome->set_up = gw_gangs_create(gang, nullptr, &gangs);
  if (outcome->set_up == GW_OK) outcome->set_up = gw_parallelize(model, gangs, nullptr);
  if (outcome->set_up == GW_OK) outcome->set_up = gw_sgd_create(model, nullptr, &opt);
  outcome->text = last_error().message;
  if (outcome->set_up == GW_OK) {
    float x = 1;
    const int64_t shape[1] = {1};
    gw_view view;
    gw_view_set(&view, &x, shape, 1, GW_F32);
    gw_batch batch;
    gw_batch_init(&batch, sizeof batch);
    batch.inputs = &view;
    batch.input_count = 1;
    batch.weight = 1;
    outcome->first = gw_train_step(model, opt, &batch, nullptr, nullptr, nullptr);
    outcome->text = last_error().message;
    if (gw_gang_rank(gang) == 0) what = kind;
    if (outcome->first == GW_OK) {
      outcome->second = gw_train_step(model, opt, &batch, nullptr, nullptr, nullptr);
      outcome->text = last_error().message;
    }
  }
  gw_optimizer_release(opt);
  gw_module_release(model);
  gw_gangs_release(gangs);
}

TEST(Exceptions, AThrowingCustomModuleReachesEveryRank) {
  for (const int ranks : {1, 2, 3})
    for (const Fault& fault : kFaults) {
      gw_gang_options options;
      gw_gang_options_init(&options, sizeof options);
      options.timeout_ms = 10000;
      options.threads = 1;
      options.arena_bytes = uint64_t{1} << 32;
      gw_gang* gangs[3] = {};
      ASSERT_EQ(gw_gang_create_threads(ranks, &options, gangs), GW_OK) << last_error().message;
      Outcome outcomes[3];
      std::thread threads[3];
      for (int r = 0; r < ranks; ++r) threads[r] = std::thread(run_rank, gangs[r], fault.kind, &outcomes[r]);
      for (int r = 0; r < ranks; ++r) threads[r].join();
      for (int r = 0; r < ranks; ++r) {
        const Outcome& o = outcomes[r];
        EXPECT_EQ(o.set_up, GW_OK) << o.text;
        EXPECT_EQ(o.first, GW_OK) << o.text;
        EXPECT_EQ(o.second, r == 0 ? fault.code : GW_E_ABORTED)
            << "rank " << r << " of " << ranks << ": " << o.text;
        EXPECT_NE(o.text, "");
        gw_gang_release(gangs[r]);
      }
    }
}

// Asked in the check phase of gw_parallelize.
TEST(Exceptions, AThrowingQuestionForADtypeIsRefusedOnEveryRank) {
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.timeout_ms = 10000;
  options.threads = 1;
  options.arena_bytes = uint64_t{1} << 32;
  gw_gang* gangs[2] = {};
  ASSERT_EQ(gw_gang_create_threads(2, &options, gangs), GW_OK) << last_error().message;
  Outcome outcomes[2];
  const auto run = [&](int rank) {
    gw_custom_options c;
    gw_custom_options_init(&c, sizeof c);
    c.name = "thrower";
    c.shapes = c.forward = c.backward_input = ok_call;
    c.accepts_dtype = [](void* user, gw_dtype) -> int32_t {
      if (*static_cast<int*>(user) == 1) throw 3;
      return 1;
    };
    c.user = &rank;
    gw_module* model = nullptr;
    gw_gangs* mesh = nullptr;
    gw_parallel_options p;
    gw_parallel_options_init(&p, sizeof p);
    p.param_dtype = GW_BF16;
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
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(outcomes[r].set_up, GW_OK);
    EXPECT_EQ(outcomes[r].first, GW_E_INTERNAL) << outcomes[r].text;
    EXPECT_NE(outcomes[r].text.find("accepts_dtype"), std::string::npos) << outcomes[r].text;
    EXPECT_EQ(outcomes[r].second, GW_OK);  // the gang works on
    gw_gang_release(gangs[r]);
  }
}

// A fill that throws on one rank is an agreed refusal.
TEST(Exceptions, AThrowingInitialiserIsRefusedOnEveryRank) {
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.timeout_ms = 10000;
  options.threads = 1;
  options.arena_bytes = uint64_t{1} << 32;
  gw_gang* gangs[2] = {};
  ASSERT_EQ(gw_gang_create_threads(2, &options, gangs), GW_OK) << last_error().message;
  Outcome outcomes[2];
  int freed[2] = {0, 0};
  const auto run = [&](int rank) {
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
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(outcomes[r].set_up, GW_OK);
    EXPECT_EQ(outcomes[r].first, GW_E_INTERNAL);
    EXPECT_NE(outcomes[r].text.find("no numbers here"), std::string::npos) << outcomes[r].text;
    EXPECT_EQ(outcomes[r].second, GW_OK);  // the gang works on
    EXPECT_EQ(freed[r], 1);
    gw_gang_release(gangs[r]);
  }
}

// A struct as a later level may have it.
struct Grown {
  size_t struct_size;
  const gw_ext* next;
  void* user;
  gw_free_fn free_user;
  int64_t newer;
};

TEST(Objects, OfACallerOlderThanALaterFieldAreFreed) {
  int freed = 0;
  Grown grown{offsetof(Grown, newer), nullptr, &freed, [](void* user) { ++*static_cast<int*>(user); }, 0};
  gangway::capi::object_of(&grown);
  EXPECT_EQ(freed, 1);
  grown.struct_size = offsetof(Grown, free_user);
  gangway::capi::object_of(&grown);
  EXPECT_EQ(freed, 1) << "its free function lies past its end";
}

}  // namespace
