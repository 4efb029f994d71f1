/* The declarations that the sources of the program of level 0.0 share; see old_consumer.c. */
#ifndef GANGWAY_TESTS_CAPI_ABI_OLD_CONSUMER_H
#define GANGWAY_TESTS_CAPI_ABI_OLD_CONSUMER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int32_t gw_status;
enum {
  GW_OK = 0,
  GW_E_INVALID_ARGUMENT = 1,
  GW_E_NOT_SUPPORTED = 2,
  GW_SUM = 1,
  GW_PART_VALUE = 0,
  GW_PART_FULL_VALUE = 2,
  GW_PHASE_FORWARD = 1,
  GW_INIT_FILL = 3,
  GW_I64 = 0x14000,
  GW_F32 = 0x12002,
  GW_F64 = 0x14002
};

typedef struct gw_gang gw_gang;
typedef struct gw_gangs gw_gangs;

typedef struct { /* frozen */
  void* data;
  int32_t device_type, device_id, ndim, dtype;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
} gw_view;
typedef struct {
  size_t struct_size;
  const void* next;
  gw_status code;
  int32_t rank, peer, system_error;
  const char* message;
} gw_error_info;

void gw_error_info_init(gw_error_info*, size_t);
gw_status gw_last_error(gw_error_info*);

/* Defined in old_consumer_parts.c: works, callbacks and a shard group. */
int parts(gw_gang* gang);

#define CHECK(fact)                                                                     \
  do {                                                                                  \
    if (!(fact)) {                                                                      \
      fprintf(stderr, "%s:%d: not so: %s: %s\n", __FILE__, __LINE__, #fact, message()); \
      return 1;                                                                         \
    }                                                                                   \
  } while (0)

/* Allocates `size` bytes in front of memory that nobody may access. */
static inline void* at_the_end(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (two == MAP_FAILED || mprotect(two + page, page, PROT_NONE) != 0) return NULL;
  return two + page - size;
}
#define SET_UP(type, x)               \
  type* x = at_the_end(sizeof(type)); \
  type##_init(x, sizeof *x)

static inline const char* message(void) {
  SET_UP(gw_error_info, info);
  gw_last_error(info);
  return info->message;
}

#endif
