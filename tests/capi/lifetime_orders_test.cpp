// Handles that need each other can be released in every order: nothing is left, and each free function runs
// exactly once.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "lifetime.hpp"

using namespace lifetime;

namespace {

using Releases = std::vector<std::function<void()>>;

std::string text(const std::vector<size_t>& order) {
  std::string all = "order";
  for (const size_t i : order) all += " " + std::to_string(i);
  return all;
}

// Makes the handles anew for every order of their releases. `frees`: the number of free functions that each
// order calls.
void every_order(int frees, size_t members, const std::function<Releases()>& make) {
  std::vector<size_t> order(members);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto release_all = [&] {
    const Releases releases = make();
    ASSERT_EQ(releases.size(), members);
    for (const size_t i : order) releases[i]();
  };
  for (int warm = 0; warm < 20; ++warm) release_all();
  do {
    freed = 0;
    const int64_t before = live;
    release_all();
    ASSERT_EQ(live, before) << text(order);
    ASSERT_EQ(freed, frees) << text(order);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Lifetime, TheHandlesOfATrainingAreReleasedInAnyOrder) {
  every_order(3, 7, [] {  // of the module, the initializer and the forward's state
    gw_gang* gang = make_gang();
    gw_gangs* gangs = make_gangs(gang);
    gw_module* model = make_model(gangs);
    gw_optimizer* optimizer = make_optimizer(model);
    gw_frame* frame = make_frame(model);
    gw_parameter* parameter = make_parameter(model);
    gw_tensor* tensor = make_value(parameter);
    return Releases{[=] { gw_gang_release(gang); },    [=] { gw_gangs_release(gangs); },
                    [=] { gw_module_release(model); }, [=] { gw_optimizer_release(optimizer); },
                    [=] { gw_frame_release(frame); },  [=] { gw_parameter_release(parameter); },
                    [=] { gw_tensor_release(tensor); }};
  });
}

TEST(Lifetime, TheHandlesOfAShardGroupAreReleasedInAnyOrder) {
  every_order(1, 6, [] {  // of the initializer
    gw_gangs* gangs = make_gangs(nullptr);
    gw_shard_group* group = make_group(gangs);
    gw_module* model = nullptr;
    ok(gw_module_from_groups(&group, 1, &model));
    gw_optimizer* optimizer = make_optimizer(model);
    gw_tensor* whole = nullptr;
    ok(gw_shard_group_unshard(group, nullptr, nullptr));
    ok(gw_shard_group_tensor(group, 0, GW_PART_FULL_VALUE, &whole));
    DLManagedTensorVersioned* out = make_export(whole);
    return Releases{[=] { gw_gangs_release(gangs); },  [=] { gw_shard_group_release(group); },
                    [=] { gw_module_release(model); }, [=] { gw_optimizer_release(optimizer); },
                    [=] { gw_tensor_release(whole); }, [=] { out->deleter(out); }};
  });
}

TEST(Lifetime, TheHandlesOfAGangAreReleasedInAnyOrder) {
  every_order(2, 6, [] {  // of the store, and of what is attached to the work
    gw_store* store = make_store();
    gw_gang_options o = with(gw_gang_options_init);
    o.rank = 0;
    o.size = 1;
    o.store = store;
    gw_gang *gang = nullptr, *other = nullptr;
    ok(gw_gang_create(&o, &gang));
    ok(gw_gang_duplicate(gang, &other));
    gw_work* work = make_work(other);
    gw_bytes* bytes = make_bytes(gang);
    void* memory = nullptr;
    ok(gw_gang_alloc(other, 4096, &memory));
    return Releases{[=] { gw_store_release(store); }, [=] { gw_gang_release(gang); },
                    [=] { gw_gang_release(other); },  [=] { gw_work_release(work); },
                    [=] { gw_bytes_release(bytes); }, [=] { gw_gang_free(nullptr, memory); }};
  });
}

TEST(Lifetime, TheHandlesOfAnImportedTensorAreReleasedInAnyOrder) {
  every_order(1, 5, [] {  // of the caller's deleter
    gw_tensor *tensor = take_tensor(), *again = nullptr;
    ok(gw_tensor_from_dlpack(make_export(tensor), &again));  // imports the library's own export
    DLManagedTensorVersioned *out = make_export(again), *other = make_export(tensor);
    gw_tensor* kept = gw_tensor_retain(tensor);
    return Releases{[=] { gw_tensor_release(tensor); }, [=] { gw_tensor_release(kept); },
                    [=] { gw_tensor_release(again); }, [=] { out->deleter(out); },
                    [=] { other->deleter(other); }};
  });
}

TEST(Lifetime, TheHandlesOfAModelOfModulesAreReleasedInAnyOrder) {
  every_order(6, 5, [] {  // of three modules and their initializers
    gw_module* parts[3] = {make_custom(), make_custom(), make_custom()};
    gw_module* model = nullptr;
    ok(gw_sequential_create(parts, 3, &model));
    gw_parameter* parameter = make_parameter(model);
    return Releases{[=] { gw_module_release(parts[0]); }, [=] { gw_module_release(parts[1]); },
                    [=] { gw_module_release(parts[2]); }, [=] { gw_module_release(model); },
                    [=] { gw_parameter_release(parameter); }};
  });
}

}  // namespace
