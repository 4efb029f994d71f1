/* Status codes, errors, versions, types of elements, and the calls that concern the whole library.
 *
 * Rules of every header: options and results are structs that begin with their size and are set up by gw_x_init;
 * handles are opaque and reference-counted; out-parameters come last and are null or zero after a failure; a refused
 * call changes nothing. Any thread may call any function unless the comment of the function says more. "Local" in a
 * comment means that no other rank takes part; "collective" means that every rank of the gang must make the same
 * call.
 *
 * Comments name codes without GW_E_. Any function with a gw_status may return INVALID_ARGUMENT (a required pointer is
 * null, a number is outside of its range; the text names it), OUT_OF_MEMORY, FORKED and INTERNAL; its comment says
 * what else to expect, and what INVALID_ARGUMENT is about. */
#ifndef GANGWAY_BASE_H
#define GANGWAY_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(SWIG) || !defined(__GNUC__)
#define GW_API
#else
#define GW_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Result of a call; open: later versions may add codes. */
typedef int32_t gw_status;
enum gw_status_value {
  GW_STATUS_NONE = -1,
  GW_OK = 0,
  GW_E_INVALID_ARGUMENT = 1, /* the caller's arguments are wrong */
  GW_E_NOT_SUPPORTED = 2,    /* correct, but this build or engine cannot do it */
  GW_E_INVALID_STATE = 3,    /* too early or too late; the text names the call that is missing */
  GW_E_GANG = 4,             /* a collective failed */
  GW_E_PEER_LOST = 5,        /* a rank died, or left without gw_gang_shutdown */
  GW_E_TIMEOUT = 6,          /* the gang's deadline passed; the gang is broken */
  GW_E_MISMATCH = 7,         /* ranks called different collectives */
  GW_E_ABORTED = 8,          /* gw_gang_abort was called here or on a peer */
  GW_E_NOT_READY = 9,        /* the time of a wait ran out; nothing is broken */
  GW_E_NOT_FOUND = 10,
  GW_E_FORKED = 11, /* called in a forked child */
  GW_E_CALLER = 12, /* a callback's own error, or the interrupt hook */
  GW_E_OUT_OF_MEMORY = 13,
  GW_E_IO = 14,
  GW_E_CORRUPT = 15, /* bytes of a file are not what they should be */
  GW_E_INTERNAL = 16 /* a fault of the library */
};

/* Extension record; none exist yet, so `next` is null everywhere. */
typedef struct gw_ext {
  int32_t kind;
  int32_t reserved;
  const struct gw_ext *next;
} gw_ext;

/* Frees a caller's object. It runs exactly once, on the thread that drops the last reference. Of this library it may
 * call release functions only. */
typedef void (*gw_free_fn)(void *user);

/* Element types: DLPack's {code, bits, lanes} as one little-endian word. Any such word with one lane can be moved. */
typedef int32_t gw_dtype;
enum gw_dtype_value {
  GW_DTYPE_INVALID = -1,
  GW_DTYPE_NONE = 0, /* in options: the default */
  GW_I8 = 0x10800,
  GW_I16 = 0x11000,
  GW_I32 = 0x12000,
  GW_I64 = 0x14000,
  GW_U8 = 0x10801,
  GW_U16 = 0x11001,
  GW_U32 = 0x12001,
  GW_U64 = 0x14001,
  GW_F16 = 0x11002,
  GW_F32 = 0x12002,
  GW_F64 = 0x14002,
  GW_BF16 = 0x11004,
  GW_C64 = 0x14005,
  GW_C128 = 0x18005,
  GW_BOOL = 0x10806,
  GW_F8_E4M3 = 0x1080a,
  GW_F8_E5M2 = 0x1080c
};

/* The last error of this thread. Its texts are borrowed until this thread's next call. */
typedef struct gw_error_info {
  size_t struct_size;
  const gw_ext *next;
  gw_status code;
  int32_t rank;         /* in the gang; -1: does not apply */
  int32_t peer;         /* likewise */
  int32_t system_error; /* errno, or 0 */
  const char *message;  /* one line, UTF-8, never null */
  const char *gang;     /* name of the gang, or "" */
  const char *op;       /* the call or collective, or "" */
  const char *path;     /* the file that a system call failed for, or "" */
} gw_error_info;

/* An error that outlives the thread's next call. */
typedef struct gw_error gw_error;
/* Bytes owned by the library. */
typedef struct gw_bytes gw_bytes;

/* Local. Zeroes all `size` bytes and sets struct_size. */
GW_API void gw_error_info_init(gw_error_info *info, size_t size);
/* Local. Fills *info with this thread's last error; code GW_OK and "" when there is none. Does not clear it.
 * INVALID_ARGUMENT, which it does not keep: null or a struct_size that is too small. */
GW_API gw_status gw_last_error(gw_error_info *info);
/* Local. This thread's last error as one line for a user: "INVALID_ARGUMENT: " and its message; "" when there is none.
 * Does not clear it; borrowed until this thread's next call. */
GW_API const char *gw_last_error_text(void);
/* Local. This thread's last error as an object that the caller owns; null when there is none. */
GW_API gw_error *gw_error_take(void);
/* Local. Fills *info; texts are borrowed from `error`. INVALID_ARGUMENT: null error; a struct_size that is
 * too small. */
GW_API gw_status gw_error_describe(const gw_error *error, gw_error_info *info);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_error *gw_error_retain(gw_error *error);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_error_release(gw_error *error);
/* Local. For a callback that is about to return a failure: sets the text of that failure. The error's text then names
 * the callback and continues with `message`, on this rank and on the peers that get the error. The text is copied;
 * line breaks become spaces. The last text counts; it is dropped if the callback returns GW_OK. INVALID_STATE: no
 * callback that returns a gw_status runs on this thread. */
GW_API gw_status gw_error_set(const char *message);

/* Local. "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that this version does not know. Static text. */
GW_API const char *gw_status_name(gw_status status);
/* Local. "f32" and so on; "unknown" for another word. Static text. */
GW_API const char *gw_dtype_name(gw_dtype dtype);
/* Local. Bytes of one element; 0 for a word that cannot be moved. */
GW_API size_t gw_dtype_bytes(gw_dtype dtype);

/* Local. The release of the library (null pointers are skipped). */
GW_API void gw_version(int32_t *out_major, int32_t *out_minor, int32_t *out_patch);
/* Local. The ABI level; major 0: may still change. */
GW_API void gw_abi_version(int32_t *out_major, int32_t *out_minor);
/* Local. The minor levels that gw_get_api knows. */
GW_API void gw_abi_range(int32_t *out_lowest, int32_t *out_highest);

/* The interrupt hook of the calling thread, for Ctrl-C and the like. The library asks it at least every 100 ms while
 * a call on this thread waits, and between layers, microbatches, tokens and pieces of files while a call computes. It
 * does not ask inside one layer or one optimizer update. If the hook returns non-zero, the call ends with CALLER:
 * - A plain collective breaks its gang.
 * - gw_train_step, gw_eval_step, gw_optimizer_step and gw_generate break the model's gangs. So do, after their check
 *   phase, gw_clip_grad_norm, gw_parameter_gather, gw_parameter_gather_gradient, gw_parameter_assign, gw_module_load
 *   and gw_shard_group_begin_update.
 * - gw_work_wait breaks nothing.
 * - If the hook stops initialisation, a save or a load on one rank, the call fails on all ranks. A new hook replaces
 *   the earlier one, whose `release` then runs. A null hook: none. */
typedef int32_t (*gw_interrupt_fn)(void *user);
/* Local, for the calling thread. `release` runs once, also when this fails. FORKED. */
GW_API gw_status gw_interrupt_set(gw_interrupt_fn check, void *user, gw_free_fn release);

/* Local. Copies log lines with number >= first as "number level text\n" into `text` (capacity in bytes);
 * *out_len is the length of all of it, *out_next the number to ask for next. Null text asks the size.
 * INVALID_ARGUMENT: `capacity` must exceed *out_len, to leave room for the final zero. */
GW_API gw_status gw_log_read(uint64_t first, char *text, size_t capacity, size_t *out_len,
                             uint64_t *out_next);
/* Local. Every environment variable that the library reads, with its value, one a line. Null text asks the
 * size. INVALID_ARGUMENT: `capacity` must exceed *out_len, to leave room for the final zero. */
GW_API gw_status gw_config_text(char *text, size_t capacity, size_t *out_len);

/* Memory of this host in bytes; UINT64_MAX: the system does not say. */
typedef struct gw_memory_info {
  size_t struct_size;
  const gw_ext *next;
  uint64_t total;     /* the machine's, or the limit of the tightest control group of this process */
  uint64_t available; /* what is free of it now; file caches count as free */
  uint64_t used;      /* by this process; pages that processes share count by their share */
} gw_memory_info;
/* Local. Zeroes all `size` bytes and sets struct_size. */
GW_API void gw_memory_info_init(gw_memory_info *info, size_t size);
/* Local. Fills *info. INVALID_ARGUMENT: null, or a struct_size that is too small. */
GW_API gw_status gw_host_memory(gw_memory_info *info);

/* The source of the ordinary host memory of tensors. Memory that peers reach (gangs on one host) comes from the gang's
 * arena instead. */
typedef struct gw_allocator {
  size_t struct_size;
  const gw_ext *next;
  /* Called from any thread, also several at once; must call nothing of this library. `alignment` is a power of two,
   * `bytes` a multiple of it and over 0; null: OUT_OF_MEMORY. */
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  /* Likewise. It must return: blocks are freed where nothing can fail. */
  void (*deallocate)(void *user, void *data, size_t bytes);
  void *user;
  gw_free_fn free_user; /* once, when another one is set and the last block is gone; may be null */
} gw_allocator;
/* Local. Zeroes all `size` bytes and sets struct_size. */
GW_API void gw_allocator_init(gw_allocator *allocator, size_t size);
/* Local, for the whole process. Blocks that are allocated after this call come from `allocator`; each block returns
 * to the allocator that it came from. Null: the C library's again. INVALID_ARGUMENT: one of the two functions is
 * null; `free_user` runs in this case, too. */
GW_API gw_status gw_allocator_set(const gw_allocator *allocator);

/* Local. Borrowed until the release of `bytes`; null for null. */
GW_API const void *gw_bytes_data(const gw_bytes *bytes);
/* Local. 0 for null. */
GW_API size_t gw_bytes_size(const gw_bytes *bytes);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_bytes *gw_bytes_retain(gw_bytes *bytes);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_bytes_release(gw_bytes *bytes);

#ifdef __cplusplus
}
#endif
#endif
