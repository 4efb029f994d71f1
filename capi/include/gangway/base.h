/* Status codes, errors, versions, element types, and the calls that concern the whole library. The rules
 * below hold for every header.
 *
 * Structs of options and of results begin with their size and are set up by their gw_NAME_init. Handles are
 * pointers to opaque structs and count their references. Out-parameters come last; they are null or zero
 * after a failure. A refused call changes nothing.
 *
 * Any thread may call any function, unless the function's comment says more. A signal handler may call
 * gw_gang_abort and gw_gangs_abort, and no other function. "Local" means that no other rank takes part.
 * "Collective" means that every rank of the gang must make the same call. "Refusals are agreed" means that
 * the ranks compare their arguments before anything runs, and all of them return the first refusal, which is
 * that of the lowest rank.
 *
 * Comments name codes without GW_E_. Any function with a gw_status may return INVALID_ARGUMENT (a required
 * pointer is null, or a number is outside of its range; the text names it), OUT_OF_MEMORY, FORKED and
 * INTERNAL. Its comment says what else to expect, and what INVALID_ARGUMENT is about.
 *
 * Functions of the following names have no comment of their own where they do no more than this:
 *
 * - gw_NAME_init: Local. Sets up a gw_NAME: zeroes all `size` bytes, sets struct_size, and sets the defaults
 *   that the comments of its fields give. Does nothing for null or a size below that of a size_t.
 * - gw_NAME_retain: Local, any thread. Takes one more reference to the object and returns its argument. Null
 *   is allowed.
 * - gw_NAME_release: Local, any thread. Gives one reference back and never blocks. The last release frees the
 *   object. Null is allowed.
 * - gw_NAME_async: Collective. Starts gw_NAME and returns before it is done. The buffers belong to the
 *   collective until the work is done. The caller releases *out_work. The call itself returns refusals, as
 *   INVALID_ARGUMENT and INVALID_STATE; the work has what fails later. */
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

/* The result of a call. The enumeration is open: later versions may add codes. */
typedef int32_t gw_status;
enum gw_status_value {
  GW_STATUS_NONE = -1,
  GW_OK = 0,
  GW_E_INVALID_ARGUMENT = 1, /* The caller's arguments are wrong. */
  GW_E_NOT_SUPPORTED = 2,    /* The call is correct, but this build or engine cannot do it. */
  GW_E_INVALID_STATE = 3, /* The call comes too early or too late; the text names the call that is missing. */
  GW_E_GANG = 4,          /* A collective failed. */
  GW_E_PEER_LOST = 5,     /* A rank died, or left without gw_gang_shutdown. */
  GW_E_TIMEOUT = 6,       /* The gang's deadline passed; the gang is broken. */
  GW_E_MISMATCH = 7,      /* Ranks called different collectives. */
  GW_E_ABORTED = 8,       /* gw_gang_abort was called here or on a peer. */
  GW_E_NOT_READY = 9,     /* The time of a wait ran out; nothing is broken. */
  GW_E_NOT_FOUND = 10,    /* Nothing has the given name or matches the given pattern. */
  GW_E_FORKED = 11,       /* The call was made in a forked child. */
  GW_E_CALLER = 12, /* A callback failed with a code of its own, or the interrupt hook ended the call. */
  GW_E_OUT_OF_MEMORY = 13, /* There is not enough memory. */
  GW_E_IO = 14,            /* A file could not be read or written. */
  GW_E_CORRUPT = 15,       /* The bytes of a file are not what they should be. */
  GW_E_INTERNAL = 16,      /* The library has a fault. */
  GW_E_BUSY = 17 /* Another thread is in a call on the object; nothing was done, here or elsewhere. */
};

/* An extension record. None exists yet, so `next` is null everywhere. */
typedef struct gw_ext {
  int32_t kind;
  int32_t reserved;
  const struct gw_ext *next;
} gw_ext;

/* Frees a caller's object. It runs exactly once, on the thread that drops the last reference. Of this library
 * it may call release functions only. */
typedef void (*gw_free_fn)(void *user);

/* Element types: DLPack's {code, bits, lanes} as one little-endian word. Any such word with one lane can be
 * moved. */
typedef int32_t gw_dtype;
enum gw_dtype_value {
  GW_DTYPE_INVALID = -1,
  GW_DTYPE_NONE = 0, /* In options: the default. */
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
  int32_t rank;         /* The rank in the gang; -1 where that does not apply. */
  int32_t peer;         /* The peer's rank in the gang; -1 where that does not apply. */
  int32_t system_error; /* The errno of a system call, or 0. */
  const char *message;  /* One line of UTF-8; never null. */
  const char *gang;     /* The name of the gang, or "". */
  const char *op;       /* The collective, or the call such as "gw_gangs_get", or "". */
  const char *path;     /* The file that a system call failed for, or "". */
} gw_error_info;

/* An error that outlives the thread's next call. */
typedef struct gw_error gw_error;
/* Bytes that the library owns. */
typedef struct gw_bytes gw_bytes;

GW_API void gw_error_info_init(gw_error_info *info, size_t size);
/* Local. Fills *info with this thread's last error, which stays as it is. If there is none, the code is GW_OK
 * and the texts are "". INVALID_ARGUMENT: info is null or its struct_size is too small; this refusal does not
 * become the last error. */
GW_API gw_status gw_last_error(gw_error_info *info);
/* Local. This thread's last error as one line for a user: "INVALID_ARGUMENT: " and its message, or "" if
 * there is none. The error stays as it is. The text is borrowed until this thread's next call. */
GW_API const char *gw_last_error_text(void);
/* Local. This thread's last error as an object that the caller owns; null if there is none. */
GW_API gw_error *gw_error_take(void);
/* Local. Fills *info; its texts are borrowed from `error`. INVALID_ARGUMENT: error is null, or the
 * struct_size of info is too small. */
GW_API gw_status gw_error_describe(const gw_error *error, gw_error_info *info);
GW_API gw_error *gw_error_retain(gw_error *error);
GW_API void gw_error_release(gw_error *error);
/* Local. A callback that is about to return a failure sets the text of that failure by this call. The error's
 * text then names the callback and continues with `message`, on this rank and on the peers that get the
 * error. The text is copied, and its line breaks become spaces. If a callback sets several texts, the last
 * one counts. The text is dropped if the callback returns GW_OK. INVALID_STATE: no callback that returns a
 * gw_status runs on this thread. */
GW_API gw_status gw_error_set(const char *message);

/* Local. The name of a status, "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that this version does
 * not know. The text is static. */
GW_API const char *gw_status_name(gw_status status);
/* Local. The name of an element type, "f32" and so on; "unknown" for another word. The text is static. */
GW_API const char *gw_dtype_name(gw_dtype dtype);
/* Local. The number of bytes of one element; 0 for a word that cannot be moved. */
GW_API size_t gw_dtype_bytes(gw_dtype dtype);

/* Local. Gives the release of the library. Null pointers are skipped. */
GW_API void gw_version(int32_t *out_major, int32_t *out_minor, int32_t *out_patch);
/* Local. Gives the ABI level. A level of major 0 may still change. Null pointers are skipped. */
GW_API void gw_abi_version(int32_t *out_major, int32_t *out_minor);
/* Local. Gives the lowest and the highest minor level that gw_get_api knows. Null pointers are skipped. */
GW_API void gw_abi_range(int32_t *out_lowest, int32_t *out_highest);

/* The interrupt hook of the calling thread, for Ctrl-C and the like. The library asks it at least every 100
 * ms while a call on this thread waits, and between layers, microbatches, tokens and pieces of files while a
 * call computes. It does not ask inside one layer or one optimizer update. If the hook returns non-zero, the
 * call ends with CALLER:
 *
 * - A plain collective breaks its gang.
 * - gw_train_step, gw_eval_step, gw_optimizer_step and gw_generate break the model's gangs.
 *   gw_clip_grad_norm, gw_parameter_gather, gw_parameter_gather_gradient, gw_parameter_assign, gw_module_load
 *   and gw_shard_group_begin_update do so after their check phase.
 * - gw_work_wait breaks nothing.
 * - If the hook stops initialisation, a save or a load on one rank, the call fails on all ranks.
 *
 * A new hook replaces the earlier one, whose `release` then runs. A null hook leaves the thread without
 * one. */
typedef int32_t (*gw_interrupt_fn)(void *user);
/* Local. Sets the interrupt hook of the calling thread. `release` runs once, also when this call fails.
 * FORKED is the only code to expect. */
GW_API gw_status gw_interrupt_set(gw_interrupt_fn check, void *user, gw_free_fn release);

/* Local. Copies the log lines with number >= first as "number level text\n" into `text`, which has room for
 * `capacity` bytes. *out_len is the length of all of them, and *out_next the number to ask for next. A null
 * text asks for the length alone. INVALID_ARGUMENT: `capacity` does not exceed *out_len, which leaves no room
 * for the final zero. */
GW_API gw_status gw_log_read(uint64_t first, char *text, size_t capacity, size_t *out_len,
                             uint64_t *out_next);
/* Local. Copies every environment variable that the library reads, with its value, one on each line, into
 * `text`, which has room for `capacity` bytes. *out_len is the length. A null text asks for the length alone.
 * INVALID_ARGUMENT: `capacity` does not exceed *out_len, which leaves no room for the final zero. */
GW_API gw_status gw_config_text(char *text, size_t capacity, size_t *out_len);

/* The memory of this host in bytes. UINT64_MAX means that the system does not say. */
typedef struct gw_memory_info {
  size_t struct_size;
  const gw_ext *next;
  uint64_t total;     /* That of the machine, or the limit of the tightest control group of this process. */
  uint64_t available; /* What is free of `total` now; file caches count as free. */
  uint64_t used;      /* Used by this process. A page that n processes share counts as 1/n of a page. */
} gw_memory_info;
GW_API void gw_memory_info_init(gw_memory_info *info, size_t size);
/* Local. Fills *info. INVALID_ARGUMENT: info is null, or its struct_size is too small. */
GW_API gw_status gw_host_memory(gw_memory_info *info);

/* The source of the ordinary host memory of tensors. Memory that peers reach (in gangs on one host) comes
 * from the gang's arena instead. */
typedef struct gw_allocator {
  size_t struct_size;
  const gw_ext *next;
  /* Returns `bytes` bytes, aligned to `alignment`, or null, which becomes OUT_OF_MEMORY. `alignment` is a
   * power of two; `bytes` is a multiple of it and over 0. The library calls this function from any thread,
   * also from several at once. It must not call the library. */
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  /* Frees a block; the same thread rules hold. It must return, because the library frees blocks where nothing
   * can fail. */
  void (*deallocate)(void *user, void *data, size_t bytes);
  void *user;
  /* Runs once, when another allocator is set and the last block is freed. It may be null. */
  gw_free_fn free_user;
} gw_allocator;
GW_API void gw_allocator_init(gw_allocator *allocator, size_t size);
/* Local. Sets the allocator of the whole process. Blocks that are allocated after this call come from
 * `allocator`; each block returns to the allocator that it came from. Null sets the C library's allocator
 * again. INVALID_ARGUMENT: one of the two functions is null; `free_user` runs in this case, too. */
GW_API gw_status gw_allocator_set(const gw_allocator *allocator);

/* Local. The bytes, which are borrowed until the release of `bytes`; null for null. */
GW_API const void *gw_bytes_data(const gw_bytes *bytes);
/* Local. The number of bytes; 0 for null. */
GW_API size_t gw_bytes_size(const gw_bytes *bytes);
GW_API gw_bytes *gw_bytes_retain(gw_bytes *bytes);
GW_API void gw_bytes_release(gw_bytes *bytes);

#ifdef __cplusplus
}
#endif
#endif
