/* Gangs: ranks that act together, their creation, facts, memory, traces and end. Ranks are relative to the gang.
 *
 * Every collective call here returns, beside what its comment names, INVALID_STATE after shutdown; and, with a broken gang,
 * MISMATCH (ranks made different calls), PEER_LOST, TIMEOUT, ABORTED, CALLER (the interrupt hook) or GANG. A collective that
 * fails after it began breaks its gang: every later call returns the first error. */
#ifndef GANGWAY_GANG_H
#define GANGWAY_GANG_H

#include <gangway/store.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_gang gw_gang;

/* The caller's own way to exchange bytes before there is a gang (MPI, a job's key-value service, a pipe). Collective:
 * every rank gives `size` bytes, the same number on each, and gets all of them in `output`, gang size times `size`
 * bytes in the order of the ranks. */
typedef gw_status (*gw_all_gather_fn)(void *user, const void *input, size_t size, void *output);

typedef struct gw_gang_options {
  size_t struct_size;
  const gw_ext *next;
  const char *device; /* null: "cpu" */
  const char *engine; /* null: "auto"; "self", "host", "mpi". Gangs of device "cuda" have NCCL under "auto" */
  const char *name;   /* null: "gang"; names the gang in errors */
  int64_t timeout_ms; /* deadline of every wait; 0: 15 minutes or GANGWAY_TIMEOUT_MS */
  /* A peer that is silent for so long is lost; at least 50, equal on all ranks. 0: GANGWAY_LIVENESS_MS, else off. */
  int64_t liveness_ms;
  uint64_t arena_bytes;  /* address space of the host's arena; 0: min(8 x RAM, 256 GiB) */
  uint64_t memory_limit; /* bytes that the host's arena may take; 0: 80 % of what is there at creation */
  int32_t high_priority; /* 1: a stream of high priority on CUDA */
  int32_t expected_size; /* any other number of ranks is INVALID_ARGUMENT; 0: any */
  int32_t threads;       /* of this rank's pool; 0: cores / ranks on this host */
  int32_t rank;          /* -1: the environment decides; else with size, and store, id or all_gather */
  int32_t size;
  int32_t reserved;
  gw_store *store; /* where ranks meet; null: id, all_gather, else the environment's */
  const void *id;  /* blob of gw_gang_id_create, the same on every rank; null: none */
  size_t id_size;
  /* Null: none. Otherwise ranks meet through it: gw_gang_create calls it once on every rank, on the calling thread,
   * to share an id that rank 0 makes and any refusal (options, device, engine, memory), which every rank then
   * returns. A rank does not call it if it cannot read its options: struct_size is too small or not set, size is
   * below 1, or the process is a forked child. Calls other than gw_gang_create refuse it. free_user runs once, before
   * that call returns. */
  gw_all_gather_fn all_gather;
  void *user;
  gw_free_fn free_user;
} gw_gang_options;

typedef struct gw_gang_traffic {
  size_t struct_size;
  const gw_ext *next;
  uint64_t calls;
  uint64_t bytes_moved;  /* payload that this rank read from peers */
  uint64_t bytes_staged; /* payload that this rank first copied into staging memory for its peers */
} gw_gang_traffic;

/* --- creation ---------------------------------------------------------------------------------------------------- */

/* Local. Sets up a gw_gang_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_gang_options_init(gw_gang_options *options, size_t size);
/* Collective over the future ranks. Null options: the environment decides: RANK and WORLD_SIZE, as gangrun and torchrun
 * set them or by hand, beside them LOCAL_RANK and LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT or GANGWAY_JOB; or what srun
 * (SLURM_*) and mpirun (OMPI_*, PMI_*) set. If no variable is set: one rank. The caller releases *out_gang. INVALID_ARGUMENT names the variable or field;
 * NOT_SUPPORTED: this build does not have the engine or device; PEER_LOST: a rank died after it had met rank 0;
 * TIMEOUT: a rank did not arrive in time, for example because it died before it met rank 0. */
GW_API gw_status gw_gang_create(const gw_gang_options *options, gw_gang **out_gang);
/* Local. Makes an id blob (a secret: give it to the other ranks over a private channel); needs `capacity` >= 64,
 * else INVALID_ARGUMENT. *out_size is the number of bytes written. */
GW_API gw_status gw_gang_id_create(void *id, size_t capacity, size_t *out_size);
/* Local. `count` root gangs in one process, one for each thread that is a rank, into out_gangs[count]; the
 * caller releases each. INVALID_ARGUMENT: count below 1, an all_gather, an engine for processes. */
GW_API gw_status gw_gang_create_threads(int32_t count, const gw_gang_options *options, gw_gang *out_gangs[]);
/* Local. A gang without peers: acts as if every rank held the caller's data. The caller releases *out_gang.
 * INVALID_ARGUMENT: a rank outside of the size. */
GW_API gw_status gw_gang_create_fake(int32_t rank, int32_t size, const gw_gang_options *options,
                                     gw_gang **out_gang);
/* Collective over `gang`. New ranks in the order of the list; the caller releases *out_gang, which is null
 * (and the status OK) for a rank that is not in it. INVALID_ARGUMENT on every rank: a duplicate, an element
 * outside [0, size), an empty list. MISMATCH: the lists differ. */
GW_API gw_status gw_gang_create_gang(gw_gang *gang, const int32_t *ranks, size_t rank_count,
                                     gw_gang **out_gang);
/* Collective. Ranks of one color, by key, then rank; the caller releases *out_gang. color < 0: null (and OK). */
GW_API gw_status gw_gang_split(gw_gang *gang, int32_t color, int32_t key, gw_gang **out_gang);
/* Collective. The same members, private traffic. The caller releases *out_gang. */
GW_API gw_status gw_gang_duplicate(gw_gang *gang, gw_gang **out_gang);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_gang *gw_gang_retain(gw_gang *gang);
/* Local, any thread, never blocks. If this drops the last reference, the rank leaves the gang without shutdown, and
 * peers that wait for it get PEER_LOST. */
GW_API void gw_gang_release(gw_gang *gang);

/* --- facts (local; -1 or "" for null) ----------------------------------------------------------------------------- */

/* Local. This rank's number, 0 to size - 1. */
GW_API int32_t gw_gang_rank(const gw_gang *gang);
/* Local. The number of ranks. */
GW_API int32_t gw_gang_size(const gw_gang *gang);
/* Local. Borrowed until the release of the gang. */
GW_API const char *gw_gang_name(const gw_gang *gang);
/* Local. "self", "host" and so on; borrowed likewise. */
GW_API const char *gw_gang_engine(const gw_gang *gang);
/* Local. "cpu" and so on; borrowed likewise. */
GW_API const char *gw_gang_device(const gw_gang *gang);
/* Local. ncclComm_t, MPI_Comm or the like, borrowed until the release of the gang; NOT_SUPPORTED where the engine has
 * none; INVALID_STATE before the first collective of a gang of GPUs, which makes its communicator. */
GW_API gw_status gw_gang_native_handle(gw_gang *gang, void **out_handle);
/* Local. Sets up a gw_gang_traffic: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_gang_traffic_init(gw_gang_traffic *traffic, size_t size);
/* Local. What this rank has moved since the gang was created. INVALID_ARGUMENT: null, or a struct_size that is too
 * small. */
GW_API gw_status gw_gang_get_traffic(const gw_gang *gang, gw_gang_traffic *traffic);

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Local. Memory that peers reach directly, 64-byte aligned; it stays valid after the gang is released. The caller
 * releases *out_data by gw_gang_free. OUT_OF_MEMORY with both numbers. */
GW_API gw_status gw_gang_alloc(gw_gang *gang, size_t bytes, void **out_data);
/* Local. A new tensor in such memory, row-major, its elements undefined; the caller releases *out_tensor.
 * INVALID_ARGUMENT: ndim outside of 0 to 8, a dim below 0, a dtype that cannot be moved. OUT_OF_MEMORY with both numbers. */
GW_API gw_status gw_gang_alloc_tensor(gw_gang *gang, const int64_t *shape, int32_t ndim, gw_dtype dtype,
                                      gw_tensor **out_tensor);
/* Local, any thread, before or after the release of the gang. Like every release it does not change the last error
 * and may run in a finalizer. `gang` may be null, because the address is enough. Null data: nothing happens. An
 * address that is neither from gw_gang_alloc nor from gw_gang_alloc_shared is ignored, and the log says so
 * (gw_log_read). */
GW_API void gw_gang_free(gw_gang *gang, void *data);
/* Collective. One zeroed region of `bytes`, the same number on each rank, that all ranks map; the caller
 * releases *out_data by gw_gang_free (local). NOT_SUPPORTED: ranks on several hosts. MISMATCH: the numbers
 * differ. OUT_OF_MEMORY. */
GW_API gw_status gw_gang_alloc_shared(gw_gang *gang, size_t bytes, void **out_data);

/* --- traces ------------------------------------------------------------------------------------------------------ */

/* Collective over a root gang. From here on each rank writes what it does, and when, into folder/rank-R.json: steps, what
 * modules compute, actions of pipelines, collectives from launch to end, waits. A second trace of a rank in one process goes
 * into rank-R.2.json and so on. The folder is made if it is missing. Viewers: ui.perfetto.dev; the program gw-trace puts the
 * files of all ranks together and draws pipelines. All files go by the clock of rank 0. GANGWAY_TRACE=folder in the
 * environment, the same on all ranks, does this for any program but a fake gang's and a rank's private gang of one.
 * INVALID_ARGUMENT: a gang that was made of another, a null or empty folder. INVALID_STATE, on every rank: a rank traces
 * already. IO, on every rank: a file cannot be written. */
GW_API gw_status gw_gang_begin_trace(gw_gang *gang, const char *folder);
/* Local. Ends the trace and completes its file; nothing where none was begun. It also ends with the last of the rank's
 * gangs. IO: the file is not complete. */
GW_API gw_status gw_gang_end_trace(gw_gang *gang);

/* --- ends -------------------------------------------------------------------------------------------------------- */

/* Collective and orderly; later calls are INVALID_STATE. timeout_ms -1: the gang's deadline. TIMEOUT,
 * PEER_LOST: a rank did not arrive. */
GW_API gw_status gw_gang_shutdown(gw_gang *gang, int64_t timeout_ms);
/* Local, any thread. Breaks the gang and wakes every waiter here and on peers, whose calls return ABORTED
 * with `reason` (null: no reason). A gang that is broken already keeps its first error. INVALID_ARGUMENT:
 * null gang. */
GW_API gw_status gw_gang_abort(gw_gang *gang, const char *reason);
/* Local, never blocks. OK while the gang works, else why it is broken (PEER_LOST, ABORTED and so on). */
GW_API gw_status gw_gang_async_error(gw_gang *gang);
/* Collective over the survivors (ranks of the broken gang, the same list on each). The new gang has them in the order
 * of the list. A rank that is lost before all have arrived is left out, so lists that differ only by such ranks agree:
 * gw_gang_size of *out_gang is the number that is left. On return no left-out rank writes into a survivor's memory any
 * more: the call waits until such writes, or their processes, have ended. The caller releases *out_gang. MISMATCH, on
 * all of them: live ranks gave different lists; ABORTED: the others took this rank for lost and went on without it;
 * TIMEOUT names a rank that did not arrive or did not end. The call may be repeated. INVALID_STATE: the gang is not
 * broken; INVALID_ARGUMENT: the calling rank is not in the list. */
GW_API gw_status gw_gang_shrink(gw_gang *gang, const int32_t *survivors, size_t survivor_count,
                                gw_gang **out_gang);
/* Local. The ring of the last collectives as text, one a line. Null text asks the size. INVALID_ARGUMENT:
 * `capacity` must exceed *out_len, to leave room for the final zero. */
GW_API gw_status gw_gang_flight_record(const gw_gang *gang, char *text, size_t capacity, size_t *out_len);

#ifdef __cplusplus
}
#endif
#endif
