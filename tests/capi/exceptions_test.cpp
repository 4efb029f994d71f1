// No exception leaves the library: a fault in any entry becomes a status and a text.
#include <gangway/gangway.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "callbacks.h"
#include "every_entry.h"
#include "facts.h"
#include "guard.h"
#include "small.h"

namespace {

struct Fault {
  int kind;
  gw_status code;
  const char* text;
};
constexpr std::array<Fault, 3> kFaults = {{{1, GW_E_OUT_OF_MEMORY, "no memory"},
                                           {2, GW_E_INTERNAL, "armed fault"},
                                           {3, GW_E_INTERNAL, "unknown exception"}}};

// The fault comes before the entry reads its arguments.
void check(const Entry& entry) {
  for (const Fault& fault : kFaults) {
    gangway::capi::arm_fault(fault.kind);
    EXPECT_EQ(entry.call(entry.function), fault.code) << entry.name << ", fault " << fault.kind;
    EXPECT_EQ(last_error().code, fault.code) << entry.name;
    EXPECT_NE(std::string(last_error().message).find(fault.text), std::string::npos)
        << entry.name << ": " << last_error().message;
    gangway::capi::arm_fault(0);
  }
}

// Entries that return something else, and facts that are of type int32_t, cannot report a failure. They
// contain no code that throws, so the fault remains armed, or they swallow it.
void check_nothing_escapes(const Entry& entry) {
  for (const Fault& fault : kFaults) {
    gangway::capi::arm_fault(fault.kind);
    try {
      entry.call(entry.function);
    } catch (...) {
      ADD_FAILURE() << entry.name << " let fault " << fault.kind << " escape";
    }
    gangway::capi::arm_fault(0);
  }
}

TEST(Exceptions, NoEntryLetsAFaultEscape) {
  for (const Entry& entry : kEntries) {
    const bool fact = kFacts.count(entry.name) != 0 || std::string(entry.name) == "gw_last_error";
    if (entry.gives_status && !fact)
      check(entry);
    else
      check_nothing_escapes(entry);
  }
  EXPECT_GT(std::size(kEntries), 190u);
}

void count(void* user) { ++*static_cast<int*>(user); }
gw_status ok_call(void*, gw_call*) { return GW_OK; }

TEST(Exceptions, FreeFunctionsRunOnceAfterAnInjectedFault) {
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
