// No exception leaves the library: a fault in any entry becomes a status and a text.
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

#include "callbacks.h"
#include "facts.h"
#include "guard.h"
#include "small.h"

namespace {

// Calls an entry with null and zero for every argument. The fault comes before the entry reads them.
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

// Entries that return something else, and facts that are of type int32_t, cannot report a failure. They
// contain no code that throws, so the fault remains armed, or they swallow it.
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
    EXPECT_EQ(freed, 5);  // those of the module and of the initializer

    gw_shard_group* group = nullptr;
    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(gw_shard_group_create(nullptr, "g", &p, 1, nullptr, 0, &group), fault.code);
    EXPECT_EQ(freed, 6);
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
