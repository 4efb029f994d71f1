/* dlopen_test LIBRARY: opens, uses and closes the library 100 times. The library stays at its address, and
 * the process gains neither threads nor descriptors nor memory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <gangway/gangway.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { kTimes = 100, kWarm = 10 };

#define CHECK(fact)                                              \
  do {                                                           \
    if (!(fact)) {                                               \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #fact); \
      return 1;                                                  \
    }                                                            \
  } while (0)

static int entries(const char* folder) {
  DIR* all = opendir(folder);
  int count = 0;
  while (all != NULL && readdir(all) != NULL) ++count;
  closedir(all);
  return count;
}

typedef struct use {
  int threads, descriptors;
  size_t heap, mapped; /* in bytes and in pages */
} use;

static use now(void) {
  use u = {entries("/proc/self/task"), entries("/proc/self/fd"), 0, 0};
  const struct mallinfo2 info = mallinfo2();
  u.heap = info.uordblks + info.hblkhd;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%zu", &u.mapped) != 1) u.mapped = 0;
  fclose(file);
  return u;
}

static int collective(const gw_api* api) {
  gw_gang* gang = NULL;
  gw_work* work = NULL;
  double sum = 0;
  float x = 3, y = 0;
  CHECK(api->gang_create(NULL, &gang) == GW_OK);
  CHECK(api->gang_all_sum(gang, 3, &sum) == GW_OK && sum == 3);
  CHECK(api->gang_all_reduce_async(gang, &x, &y, 1, GW_F32, GW_SUM, NULL, &work) == GW_OK);
  CHECK(api->work_wait(work, -1) == GW_OK && y == 3);
  api->work_release(work);
  CHECK(api->gang_barrier(NULL, NULL) == GW_E_INVALID_ARGUMENT);
  api->gang_release(gang);
  return 0;
}

static int once(const char* path, const gw_api** first) {
  const gw_api* (*get_api)(int32_t) = NULL;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  void* symbol = dlsym(library, "gw_get_api");
  memcpy(&get_api, &symbol, sizeof get_api);
  const gw_api* api = get_api(0);
  CHECK(api != NULL && api->struct_size == sizeof *api && get_api(99) == NULL);
  CHECK(*first == NULL || api == *first);
  *first = api;
  if (collective(api) != 0) return 1;
  CHECK(dlclose(library) == 0);
  library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  CHECK(library != NULL); /* it is still loaded */
  CHECK(dlclose(library) == 0);
  return 0;
}

int main(int count, char** arguments) {
  const gw_api* api = NULL;
  const int threads = entries("/proc/self/task");
  CHECK(count == 2);
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(library != NULL);
  CHECK(entries("/proc/self/task") == threads); /* loading starts no thread */
  CHECK(dlclose(library) == 0);
  use before = now();
  for (int i = 0; i < kTimes; ++i) {
    if (i == kWarm) before = now();
    if (once(arguments[1], &api) != 0) return 1;
  }
  /* The system may list a joined thread a little longer. If a thread remains, the test reaches its time
   * limit. */
  while (entries("/proc/self/task") > before.threads) usleep(1000);
  const use after = now();
  printf(
      "%d times; threads %d to %d, descriptors %d to %d, heap %zu to %zu bytes, address space %zu to %zu "
      "pages\n",
      kTimes, before.threads, after.threads, before.descriptors, after.descriptors, before.heap, after.heap,
      before.mapped, after.mapped);
  CHECK(after.descriptors <= before.descriptors);
  CHECK(after.heap <= before.heap + 4096);
  CHECK(after.mapped <= before.mapped + 4096);
  return 0;
}
