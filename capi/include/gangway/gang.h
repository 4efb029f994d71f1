/* Gangs: ranks that act together. Their creation, facts, memory, traces and end; ranks are relative to the
 * gang.
 *
 * A collective call of this header returns, besides the codes that its comment names, INVALID_STATE after
 * shutdown and, with a broken gang, MISMATCH (ranks made different calls), PEER_LOST, TIMEOUT, ABORTED,
 * CALLER (the interrupt hook) or GANG. A collective that fails after it began breaks its gang, and every
 * later call returns the first error. */
#ifndef GANGWAY_GANG_H
#define GANGWAY_GANG_H

#include <gangway/store.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_gang gw_gang;

/* The caller's own way to exchange bytes before there is a gang (MPI, a job's key-value service, a pipe).
 * Collective: every rank gives `size` bytes, the same number on each, and gets the bytes of all ranks in
 * `output`, which has gang size times `size` bytes in the order of the ranks. */
typedef gw_status (*gw_all_gather_fn)(void *user, const void *input, size_t size, void *output);

typedef struct gw_gang_options {
  size_t struct_size;
  const gw_ext *next;
  const char *device; /* Default null: "cpu". */
  /* Default null: "auto". Others are "self", "host", "network" and "mpi". Under "auto", gangs over several
   * hosts have "network", or "mpi" where MPI's launcher started the ranks and MASTER_ADDR is not set, and
   * gangs of device "cuda" have NCCL. */
  const char *engine;
  const char *name;   /* Names the gang in errors. Default null: "gang". */
  int64_t timeout_ms; /* The deadline of every wait. Default 0: GANGWAY_TIMEOUT_MS, else 15 minutes. */
  /* A peer that is silent for this long is lost. At least 50, and equal on all ranks. Default 0:
   * GANGWAY_LIVENESS_MS, else off. */
  int64_t liveness_ms;
  uint64_t arena_bytes; /* The address space of the host's arena. Default 0: min(8 x RAM, 256 GiB). */
  /* The bytes that the host's arena may take. Default 0: 80 % of the memory available at creation. */
  uint64_t memory_limit;
  int32_t high_priority; /* 1: a stream of high priority on CUDA. Default 0. */
  int32_t expected_size; /* Any other number of ranks is INVALID_ARGUMENT. Default 0: any number. */
  int32_t threads;       /* Threads of this rank's pool. Default 0: usable cores / ranks on this host. */
  int32_t rank; /* Default -1: the environment decides. Else with size, and store, id or all_gather. */
  int32_t size; /* The number of ranks, where rank is given. */
  int32_t reserved;
  gw_store *store; /* Where ranks meet. Default null: id, else all_gather, else the environment's store. */
  const void *id;  /* The blob of gw_gang_id_create, the same on every rank. Default null: none. */
  size_t id_size;  /* The bytes of id. */
  /* Ranks meet through this function unless it is null, which is the default. gw_gang_create calls it once on
   * every rank, on the calling thread, to share an id that rank 0 makes and any refusal (options, device,
   * engine, memory), which every rank then returns. A rank does not call it if it cannot read its options:
   * struct_size is too small or not set, size is below 1, or the process is a forked child. Calls other than
   * gw_gang_create refuse it. */
  gw_all_gather_fn all_gather;
  void *user;
  gw_free_fn free_user; /* Runs once, before the call with these options returns. */
} gw_gang_options;

typedef struct gw_gang_traffic {
  size_t struct_size;
  const gw_ext *next;
  uint64_t calls;
  uint64_t bytes_moved;  /* The payload that this rank read from peers. */
  uint64_t bytes_staged; /* The payload that this rank first copied into staging memory for its peers. */
} gw_gang_traffic;

/* --- creation ------------------------------------------------------------------------------------------- */

GW_API void gw_gang_options_init(gw_gang_options *options, size_t size);
/* Collective over the future ranks. Makes a root gang. If options are null, the environment decides. It has
 * RANK and WORLD_SIZE, as gangrun and torchrun set them or as the user does, and with them LOCAL_RANK and
 * LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT or GANGWAY_JOB; or it has what srun (SLURM_*) or mpirun (OMPI_*,
 * PMI_*) sets. If no variable is set, the gang has one rank. The caller releases *out_gang. INVALID_ARGUMENT
 * names the variable or field. NOT_SUPPORTED: this build does not have the engine or device. PEER_LOST: a
 * rank died after it had met rank 0. TIMEOUT: a rank did not arrive in time, for example because it died
 * before it met rank 0. */
GW_API gw_status gw_gang_create(const gw_gang_options *options, gw_gang **out_gang);
/* Local. Makes an id blob, which is a secret: give it to the other ranks over a private channel. *out_size is
 * the number of bytes written to `id`. INVALID_ARGUMENT: `capacity` is below 64 bytes. */
GW_API gw_status gw_gang_id_create(void *id, size_t capacity, size_t *out_size);
/* Local. Makes `count` root gangs in one process, one for each thread that is a rank, in out_gangs[count].
 * The caller releases each. INVALID_ARGUMENT: count is below 1, the options have an all_gather, or the engine
 * is for processes. */
GW_API gw_status gw_gang_create_threads(int32_t count, const gw_gang_options *options, gw_gang *out_gangs[]);
/* Local. Makes a gang without peers, which acts as if every rank held the caller's data. The caller releases
 * *out_gang. INVALID_ARGUMENT: a rank outside of the size. */
GW_API gw_status gw_gang_create_fake(int32_t rank, int32_t size, const gw_gang_options *options,
                                     gw_gang **out_gang);
/* Collective over `gang`. Makes a gang of the listed ranks, which are numbered anew in the order of the list.
 * The caller releases *out_gang; it is null, and the status is OK, for a rank that is not in the list.
 * INVALID_ARGUMENT on every rank: a duplicate, an element outside of [0, size), an empty list. MISMATCH: the
 * lists differ. */
GW_API gw_status gw_gang_create_gang(gw_gang *gang, const int32_t *ranks, size_t rank_count,
                                     gw_gang **out_gang);
/* Collective. Makes a gang of the ranks of one color, ordered by key, then by rank. The caller releases
 * *out_gang. A rank with a color below 0 gets null, and the status is OK. INVALID_STATE: after shutdown. */
GW_API gw_status gw_gang_split(gw_gang *gang, int32_t color, int32_t key, gw_gang **out_gang);
/* Collective. Makes a gang of the same members, whose traffic is its own. The caller releases *out_gang.
 * INVALID_STATE: after shutdown. */
GW_API gw_status gw_gang_duplicate(gw_gang *gang, gw_gang **out_gang);
GW_API gw_gang *gw_gang_retain(gw_gang *gang);
/* Local, any thread, never blocks. Gives one reference back. If this is the last one, the rank leaves the
 * gang without shutdown, and peers that wait for it get PEER_LOST. Null is allowed. */
GW_API void gw_gang_release(gw_gang *gang);

/* --- facts ---------------------------------------------------------------------------------------------- */

/* Local. This rank's number, 0 to size - 1; -1 for null. */
GW_API int32_t gw_gang_rank(const gw_gang *gang);
/* Local. The number of ranks; -1 for null. */
GW_API int32_t gw_gang_size(const gw_gang *gang);
/* Local. The gang's name, borrowed until the release of the gang; "" for null. */
GW_API const char *gw_gang_name(const gw_gang *gang);
/* Local. The engine, "self", "host" and so on, borrowed until the release of the gang; "" for null. */
GW_API const char *gw_gang_engine(const gw_gang *gang);
/* Local. The device, "cpu" and so on, borrowed until the release of the gang; "" for null. */
GW_API const char *gw_gang_device(const gw_gang *gang);
/* Local. The engine's own handle (ncclComm_t, MPI_Comm or the like), borrowed until the release of the gang.
 * NOT_SUPPORTED: the engine has none. INVALID_STATE: a gang of GPUs has not called a collective yet; the
 * first one makes its communicator. */
GW_API gw_status gw_gang_native_handle(gw_gang *gang, void **out_handle);
GW_API void gw_gang_traffic_init(gw_gang_traffic *traffic, size_t size);
/* Local. Fills *traffic with what this rank has moved since the gang was created. INVALID_ARGUMENT: traffic
 * is null, or its struct_size is too small. */
GW_API gw_status gw_gang_get_traffic(const gw_gang *gang, gw_gang_traffic *traffic);

/* --- memory --------------------------------------------------------------------------------------------- */

/* Local. Allocates `bytes` bytes that peers access directly, aligned to 64 bytes. The memory stays valid
 * after the gang is released. The caller releases *out_data by gw_gang_free. OUT_OF_MEMORY: the text has the
 * wanted and the available number of bytes. */
GW_API gw_status gw_gang_alloc(gw_gang *gang, size_t bytes, void **out_data);
/* Local. Makes a tensor in such memory, row-major, with undefined elements. The caller releases *out_tensor.
 * INVALID_ARGUMENT: ndim outside of 0 to 8, a dim below 0, a dtype that cannot be moved. OUT_OF_MEMORY as in
 * gw_gang_alloc. */
GW_API gw_status gw_gang_alloc_tensor(gw_gang *gang, const int64_t *shape, int32_t ndim, gw_dtype dtype,
                                      gw_tensor **out_tensor);
/* Local, any thread. Frees memory of gw_gang_alloc or gw_gang_alloc_shared, before or after the release of
 * the gang. Like every release it does not change the last error and may run in a finalizer. `gang` may be
 * null, because the address is enough. Null data is allowed. Any other address is ignored, and the log says
 * so (gw_log_read). */
GW_API void gw_gang_free(gw_gang *gang, void *data);
/* Collective. Makes one zeroed region of `bytes` bytes, the same number on each rank, that all ranks map. The
 * caller releases *out_data by gw_gang_free, which is local. NOT_SUPPORTED: ranks on several hosts. MISMATCH:
 * the numbers differ. OUT_OF_MEMORY as in gw_gang_alloc. */
GW_API gw_status gw_gang_alloc_shared(gw_gang *gang, size_t bytes, void **out_data);

/* --- traces --------------------------------------------------------------------------------------------- */

/* Collective over a root gang. Starts a trace: each rank writes the times of its work to folder/rank-R.json:
 * steps, the computations of modules, actions of pipelines, collectives from launch to end, and waits. A
 * rank's second trace in one process goes into rank-R.2.json, and so on. The folder is made if it is missing.
 * ui.perfetto.dev shows the files; the program gw-trace joins the files of all ranks and draws pipelines. The
 * times in all files are those of rank 0's clock. GANGWAY_TRACE=folder in the environment, the same on all
 * ranks, traces any program in this way, except a fake gang's and a rank's private gang of one.
 * INVALID_ARGUMENT: a gang that was made of another one, a null or empty folder. INVALID_STATE, on every
 * rank: a rank traces already. IO, on every rank: a file cannot be written. */
GW_API gw_status gw_gang_begin_trace(gw_gang *gang, const char *folder);
/* Local. Ends the trace and completes its file; does nothing if no trace was begun. A trace also ends with
 * the last of the rank's gangs. IO: the file is not complete. */
GW_API gw_status gw_gang_end_trace(gw_gang *gang);

/* --- ends ----------------------------------------------------------------------------------------------- */

/* Collective. Ends the gang in order; later calls return INVALID_STATE. timeout_ms is in milliseconds; -1
 * means the gang's deadline. TIMEOUT, PEER_LOST: a rank did not arrive. */
GW_API gw_status gw_gang_shutdown(gw_gang *gang, int64_t timeout_ms);
/* Local, any thread, and in a signal handler. Breaks the gang and wakes every waiter here and on peers, whose
 * calls return ABORTED with the first 511 bytes of `reason`; a null reason gives none. A gang that is broken
 * already keeps its first error. A thread of the library does the work: the call waits until peers were told,
 * at most 100 ms (code that a handler has interrupted may hold what the work needs), and calls of this rank
 * that begin later return ABORTED in any case. GW_OK leaves the thread's last error as it is.
 * INVALID_ARGUMENT: gang is null. */
GW_API gw_status gw_gang_abort(gw_gang *gang, const char *reason);
/* Local, never blocks. Returns GW_OK while the gang works, else why it is broken (PEER_LOST, ABORTED and so
 * on). */
GW_API gw_status gw_gang_async_error(gw_gang *gang);
/* Collective over the survivors, which are ranks of the broken gang, the same list on each. Makes a new gang
 * that has them in the order of the list. A rank that is lost before all have arrived is left out, so lists
 * that differ only by such ranks agree; gw_gang_size of *out_gang is the number of ranks that are left. When
 * the call returns, no rank that was left out writes into a survivor's memory any more: the call waits until
 * such writes, or their processes, have ended. The call may be repeated. The caller releases *out_gang.
 * MISMATCH, on all of them: live ranks gave different lists. ABORTED: the others took this rank for lost and
 * went on without it. TIMEOUT names a rank that did not arrive or did not end. INVALID_STATE: the gang is not
 * broken. INVALID_ARGUMENT: the calling rank is not in the list. */
GW_API gw_status gw_gang_shrink(gw_gang *gang, const int32_t *survivors, size_t survivor_count,
                                gw_gang **out_gang);
/* Local. Copies the flight record, which is the ring of the last collectives, as text with one of them on
 * each line, into `text`, which has room for `capacity` bytes. *out_len is the length. A null text asks for
 * the length alone. INVALID_ARGUMENT: `capacity` does not exceed *out_len, which leaves no room for the final
 * zero. */
GW_API gw_status gw_gang_flight_record(const gw_gang *gang, char *text, size_t capacity, size_t *out_len);

#ifdef __cplusplus
}
#endif
#endif
