/* Counts what malloc has handed out and not got back, for tests that preload this: blocks exactly, bytes as malloc rounds
 * them. */
#include <errno.h>
#include <malloc.h>
#include <stddef.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *block);

static long blocks, bytes_held;

static void *count(void *block, long sign) {
  if (block == NULL) return NULL;
  __atomic_add_fetch(&blocks, sign, __ATOMIC_RELAXED);
  __atomic_add_fetch(&bytes_held, sign * (long)malloc_usable_size(block), __ATOMIC_RELAXED);
  return block;
}

void count_malloc(long *out_blocks, long *out_bytes) {
  *out_blocks = __atomic_load_n(&blocks, __ATOMIC_RELAXED);
  *out_bytes = __atomic_load_n(&bytes_held, __ATOMIC_RELAXED);
}

void *malloc(size_t bytes) { return count(__libc_malloc(bytes), 1); }
void *calloc(size_t items, size_t bytes) { return count(__libc_calloc(items, bytes), 1); }
void *memalign(size_t alignment, size_t bytes) { return count(__libc_memalign(alignment, bytes), 1); }
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
void free(void *block) { __libc_free(count(block, -1)); }

void *realloc(void *block, size_t bytes) {
  count(block, -1);
  void *moved = __libc_realloc(block, bytes);
  if (moved == NULL && bytes != 0) count(block, 1); /* it is still there */
  return count(moved, 1);
}

int posix_memalign(void **out_block, size_t alignment, size_t bytes) {
  void *block = memalign(alignment, bytes);
  if (block == NULL) return ENOMEM;
  *out_block = block;
  return 0;
}
