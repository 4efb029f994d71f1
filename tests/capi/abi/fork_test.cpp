// A forked child of a process that has gangs: every entry of the library refuses to run there, releases
// change nothing, and a program that the child starts inherits no descriptor.
#include <dirent.h>
#include <fcntl.h>
#include <gangway/gangway.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "capi/every_entry.h"
#include "capi/facts.h"

namespace {

// The number of wrong facts in the child, which is its exit status. It prints them to standard error.
int wrong = 0;
void expect(bool fact, const char* what) {
  if (fact) return;
  ++wrong;
  std::fprintf(stderr, "in the child: %s\n", what);
}

int run_in_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(wrong < 100 ? wrong : 100);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int refuse(const Entry& entry) {
  const gw_status status = entry.call(entry.function);
  if (!entry.gives_status || kFacts.count(entry.name) != 0 || std::string(entry.name) == "gw_last_error")
    return 0;
  gw_error_info info;
  gw_error_info_init(&info, sizeof info);
  gw_last_error(&info);
  expect(status == GW_E_FORKED, entry.name);
  expect(info.code == GW_E_FORKED && std::string(info.message).find("fork") != std::string::npos, entry.name);
  return 1;
}

struct Handles {
  gw_gang* gangs[2] = {};
  gw_gangs* mesh = nullptr;
  gw_module* model = nullptr;
  gw_optimizer* opt = nullptr;
  gw_frame* frame = nullptr;
  gw_parameter* parameter = nullptr;
  gw_work* work = nullptr;
  gw_store* store = nullptr;
  gw_tensor* tensor = nullptr;
  gw_bytes* bytes = nullptr;
  int freed = 0;

  void make() {
    gw_gang_options options;
    gw_gang_options_init(&options, sizeof options);
    options.threads = 2;
    options.arena_bytes = uint64_t{1} << 30;
    ASSERT_EQ(gw_gang_create_threads(2, &options, gangs), GW_OK);
    ASSERT_EQ(gw_gangs_create(nullptr, nullptr, &mesh), GW_OK);
    make_model();
    gw_gang* root = nullptr;
    ASSERT_EQ(gw_gangs_get(mesh, "root", &root), GW_OK);
    ASSERT_EQ(gw_gang_barrier_async(root, nullptr, &work), GW_OK);
    ASSERT_EQ(gw_gang_broadcast_bytes(root, "abc", 3, 0, &bytes), GW_OK);
    gw_gang_release(root);
    gw_store_callbacks s;
    gw_store_callbacks_init(&s, sizeof s);
    s.put = [](void*, const char*, const void*, size_t) -> gw_status { return GW_OK; };
    s.get = [](void*, const char*, void*, size_t, int64_t*) -> gw_status { return GW_OK; };
    s.remove = [](void*, const char*) -> gw_status { return GW_OK; };
    s.user = &freed;
    s.free_user = [](void* user) { ++*static_cast<int*>(user); };
    ASSERT_EQ(gw_store_create_callbacks(&s, &store), GW_OK);
  }
  void make_model() {
    ASSERT_EQ(gw_linear_create(4, 4, 0, &model), GW_OK);
    ASSERT_EQ(gw_parallelize(model, mesh, nullptr), GW_OK);
    ASSERT_EQ(gw_sgd_create(model, nullptr, &opt), GW_OK);
    ASSERT_EQ(gw_frame_create(model, nullptr, &frame), GW_OK);
    ASSERT_EQ(gw_module_parameter(model, 0, &parameter), GW_OK);
    ASSERT_EQ(gw_parameter_gather(parameter, nullptr, &tensor), GW_OK);
  }
  void release() {
    gw_tensor_release(tensor);
    gw_parameter_release(parameter);
    gw_frame_release(frame);
    gw_optimizer_release(opt);
    gw_module_release(model);
    gw_work_release(work);
    gw_store_release(store);
    gw_gangs_release(mesh);
    for (gw_gang* gang : gangs) gw_gang_release(gang);
  }
};

TEST(Fork, EveryEntryIsRefusedInTheChildAndReleasesLeak) {
  Handles h;
  h.make();
  if (HasFatalFailure()) return;
  const int failures = run_in_child([&] {
    int refused = 0;
    for (const Entry& entry : kEntries) refused += refuse(entry);
    expect(refused > 120, "too few entries were tried");
    expect(gw_gang_barrier(h.gangs[0], nullptr) == GW_E_FORKED, "a barrier");
    expect(gw_work_wait(h.work, -1) == GW_E_FORKED, "a wait");
    expect(gw_train_step(h.model, h.opt, nullptr, nullptr, nullptr, nullptr) == GW_E_FORKED, "a step");
    h.release();
    expect(h.freed == 0, "a free function ran");
  });
  EXPECT_EQ(failures, 0);
  // The parent has lost nothing.
  int32_t done = 0;
  EXPECT_EQ(gw_work_poll(h.work, &done), GW_OK);
  void* memory = nullptr;
  EXPECT_EQ(gw_gang_alloc(h.gangs[0], 64, &memory), GW_OK);
  gw_gang_free(h.gangs[0], memory);
  gw_bytes_release(h.bytes);
  h.release();
  EXPECT_EQ(h.freed, 1);
}

std::set<int> descriptors() {
  std::set<int> found;
  DIR* all = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(all))
    if (entry->d_name[0] != '.') found.insert(std::atoi(entry->d_name));
  found.erase(dirfd(all));
  closedir(all);
  return found;
}

TEST(Fork, EveryDescriptorIsClosedWhenAProgramIsStarted) {
  const std::set<int> before = descriptors();
  Handles h;
  h.make();
  if (HasFatalFailure()) return;
  // Two ranks that treat each other as processes: arena, rendezvous, and watch over peers.
  unsigned char id[256];
  gw_gang_options options;
  gw_gang_options_init(&options, sizeof options);
  options.engine = "host";
  options.size = 2;
  options.arena_bytes = uint64_t{1} << 30;
  options.id = id;
  ASSERT_EQ(gw_gang_id_create(id, sizeof id, &options.id_size), GW_OK);
  gw_gang* ranks[2] = {};
  const auto create = [&](int rank) {
    gw_gang_options own = options;
    own.rank = rank;
    EXPECT_EQ(gw_gang_create(&own, &ranks[rank]), GW_OK) << rank;
  };
  std::thread other(create, 1);
  create(0);
  int opened = 0;
  for (const int descriptor : descriptors()) {
    if (before.count(descriptor) != 0) continue;
    ++opened;
    char path[64], target[256] = "";
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    [[maybe_unused]] const ssize_t size = readlink(path, target, sizeof target - 1);
    EXPECT_TRUE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC) << descriptor << ": " << target;
  }
  EXPECT_GT(opened, 0);
  other.join();
  for (gw_gang* rank : ranks) gw_gang_release(rank);
  gw_bytes_release(h.bytes);
  h.release();
}

}  // namespace
