/* Gangs: ranks that act together, and their collectives.
 *
 * Collectives on one gang from several threads run one by one, in the order of the calls. On a CPU the plain form is
 * done when it returns. The _async form returns a work; only gw_work_wait and gw_work_order order other work after
 * it. Collectives in flight run in the order of the calls, so one may read or overwrite what an earlier one writes or
 * reads. Sends and receives are ordered per pair of ranks only; their buffers must not overlap with others in flight.
 * On GPUs they run in the order of the rank's calls, too, among its collectives: two ranks that both receive first wait for each
 * other until their deadline. An exchange belongs in one gw_gang_run_batch.
 * `stream`: null for the rank's own; another must live until the gang is released. Ranks, roots and peers are relative to
 * the gang.
 *
 * If one rank refuses a call for its arguments, the collective has not begun there and the gang is not broken. Peers
 * in the call wait until that rank makes the call with correct arguments, or until their deadline; gw_gang_abort ends
 * their wait at once. If a collective fails after it began, the gang is broken: outputs are undefined, and every
 * later call returns the first error.
 *
 * Every collective returns INVALID_ARGUMENT for a null buffer, a dtype or reduce that it does not take, a root or
 * peer outside of the gang, and buffers that overlap in another way than in place; INVALID_STATE after shutdown; and,
 * with a broken gang, MISMATCH (ranks made different calls, or gave different counts), PEER_LOST, TIMEOUT, ABORTED,
 * CALLER (the interrupt hook) or GANG. An _async form returns refusals; later failures are in its work. The caller
 * releases *out_work. */
#ifndef GANGWAY_GANG_H
#define GANGWAY_GANG_H

#include <gangway/base.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_gang gw_gang;
typedef struct gw_work gw_work;
typedef struct gw_store gw_store;

typedef int32_t gw_reduce;
enum gw_reduce_value {
  GW_REDUCE_INVALID = -1,
  GW_REDUCE_NONE = 0,
  GW_SUM = 1,
  GW_MEAN = 2, /* the sum divided by the gang's size; floating types only */
  GW_PRODUCT = 3,
  GW_MIN = 4, /* bool: and */
  GW_MAX = 5  /* bool: or */
};

typedef int32_t gw_op;
enum gw_op_value {
  GW_OP_INVALID = -1,
  GW_BARRIER = 0,
  GW_ALL_REDUCE = 1,
  GW_ALL_GATHER = 2,
  GW_REDUCE_SCATTER = 3,
  GW_BROADCAST = 4,
  GW_REDUCE = 5,
  GW_GATHER = 6,
  GW_SCATTER = 7,
  GW_ALL_TO_ALL = 8,
  GW_SEND = 9,
  GW_RECV = 10
};

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

/* One collective as a record; gw_gang_run starts it. Meaning of count (elements): all_reduce, broadcast, reduce,
 * send, recv: of the whole; all_gather, gather: of one rank's input; reduce_scatter, scatter: of one rank's output;
 * all_to_all: per peer. `counts` (or null) replaces it: one for each rank; for all_to_all the counts to send, then
 * the counts to receive. */
typedef struct gw_collective {
  size_t struct_size;
  const gw_ext *next;
  const void *input;
  void *output;
  size_t count;
  const size_t *counts;
  gw_op op;
  gw_dtype dtype;
  gw_reduce reduce;
  int32_t peer;       /* root, or the other end of send and recv; -1: none */
  int32_t accumulate; /* 1: output += result (all_reduce, reduce_scatter, reduce of floating types) */
  int32_t reserved;
} gw_collective;

typedef struct gw_gang_traffic {
  size_t struct_size;
  const gw_ext *next;
  uint64_t calls;
  uint64_t bytes_moved;  /* payload that this rank read from peers */
  uint64_t bytes_staged; /* payload that this rank first copied into staging memory for its peers */
} gw_gang_traffic;

/* A caller's own store. Each function returns GW_OK or another status; then the call that used the store fails with
 * GW_E_CALLER and a text that names the function, the key and the status. get: copies at most `capacity` bytes and
 * sets *out_size to the whole size, or to -1 when the key is absent. Called on the thread that is in gw_gang_create,
 * and on no other. */
typedef struct gw_store_callbacks {
  size_t struct_size;
  const gw_ext *next;
  gw_status (*put)(void *user, const char *key, const void *value, size_t size);
  gw_status (*get)(void *user, const char *key, void *value, size_t capacity, int64_t *out_size);
  gw_status (*remove)(void *user, const char *key);
  void *user;
  gw_free_fn free_user;
} gw_store_callbacks;

/* --- stores ------------------------------------------------------------------------------------------------------ */

/* Local. A folder that all ranks of this host see; made with mode 0700 when it is absent. What an earlier run left
 * there, also one that was killed, is passed over; a process that outlived a start that failed may start again over
 * it. The caller releases *out_store. INVALID_ARGUMENT: another user owns it, or may write into it; IO: it cannot be
 * made. */
GW_API gw_status gw_store_create_file(const char *folder, gw_store **out_store);
/* Local. Sets up a gw_store_callbacks: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_store_callbacks_init(gw_store_callbacks *callbacks, size_t size);
/* Local. free_user runs once, also when this fails. The caller releases *out_store. INVALID_ARGUMENT: a
 * callback is null. */
GW_API gw_status gw_store_create_callbacks(const gw_store_callbacks *callbacks, gw_store **out_store);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_store *gw_store_retain(gw_store *store);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_store_release(gw_store *store);

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

/* --- collectives ------------------------------------------------------------------------------------------------- */

/* Local. Sets up a gw_collective: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_collective_init(gw_collective *record, size_t size);
/* Collective. Starts one record; the caller releases *out_work. Null out_work: the call waits. */
GW_API gw_status gw_gang_run(gw_gang *gang, const gw_collective *record, void *stream, gw_work **out_work);
/* Collective. Starts all records as one launch (sends and receives among them cannot deadlock). The caller
 * releases *out_work. Null out_work: the call waits. */
GW_API gw_status gw_gang_run_batch(gw_gang *gang, const gw_collective *records, size_t record_count,
                                   void *stream, gw_work **out_work);

/* Collective. Returns when every rank has called it. */
GW_API gw_status gw_gang_barrier(gw_gang *gang, void *stream);
/* Collective. Starts gw_gang_barrier and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_barrier_async(gw_gang *gang, void *stream, gw_work **out_work);
/* Collective. input and output: `count` elements; in place when equal. */
GW_API gw_status gw_gang_all_reduce(gw_gang *gang, const void *input, void *output, size_t count,
                                    gw_dtype dtype, gw_reduce reduce, void *stream);
/* Collective. Starts gw_gang_all_reduce and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_all_reduce_async(gw_gang *gang, const void *input, void *output, size_t count,
                                          gw_dtype dtype, gw_reduce reduce, void *stream, gw_work **out_work);
/* Collective. input: `count` elements; output: [size, count]; in place when input == output + rank * count. */
GW_API gw_status gw_gang_all_gather(gw_gang *gang, const void *input, void *output, size_t count,
                                    gw_dtype dtype, void *stream);
/* Collective. Starts gw_gang_all_gather and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_all_gather_async(gw_gang *gang, const void *input, void *output, size_t count,
                                          gw_dtype dtype, void *stream, gw_work **out_work);
/* Collective. Into one buffer for each rank: outputs[size], each of `count` elements. */
GW_API gw_status gw_gang_all_gather_list(gw_gang *gang, const void *input, void *const *outputs, size_t count,
                                         gw_dtype dtype, void *stream);
/* Collective. Starts gw_gang_all_gather_list and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_all_gather_list_async(gw_gang *gang, const void *input, void *const *outputs,
                                               size_t count, gw_dtype dtype, void *stream,
                                               gw_work **out_work);
/* Collective. input: [size, count]; output: `count` elements; in place when output == input + rank * count. */
GW_API gw_status gw_gang_reduce_scatter(gw_gang *gang, const void *input, void *output, size_t count,
                                        gw_dtype dtype, gw_reduce reduce, void *stream);
/* Collective. Starts gw_gang_reduce_scatter and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_reduce_scatter_async(gw_gang *gang, const void *input, void *output, size_t count,
                                              gw_dtype dtype, gw_reduce reduce, void *stream,
                                              gw_work **out_work);
/* Collective. input is read on the root only (may be null elsewhere); output is written on every rank. */
GW_API gw_status gw_gang_broadcast(gw_gang *gang, const void *input, void *output, size_t count,
                                   gw_dtype dtype, int32_t root, void *stream);
/* Collective. Starts gw_gang_broadcast and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_broadcast_async(gw_gang *gang, const void *input, void *output, size_t count,
                                         gw_dtype dtype, int32_t root, void *stream, gw_work **out_work);
/* Collective. output is written on the root only (may be null elsewhere). */
GW_API gw_status gw_gang_reduce(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
                                gw_reduce reduce, int32_t root, void *stream);
/* Collective. Starts gw_gang_reduce and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_reduce_async(gw_gang *gang, const void *input, void *output, size_t count,
                                      gw_dtype dtype, gw_reduce reduce, int32_t root, void *stream,
                                      gw_work **out_work);
/* Collective. input: `count` elements; output: [size, count], on the root only (may be null elsewhere). */
GW_API gw_status gw_gang_gather(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
                                int32_t root, void *stream);
/* Collective. Starts gw_gang_gather and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_gather_async(gw_gang *gang, const void *input, void *output, size_t count,
                                      gw_dtype dtype, int32_t root, void *stream, gw_work **out_work);
/* Collective. input: [size, count], on the root only (may be null elsewhere); output: `count` elements. */
GW_API gw_status gw_gang_scatter(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
                                 int32_t root, void *stream);
/* Collective. Starts gw_gang_scatter and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_scatter_async(gw_gang *gang, const void *input, void *output, size_t count,
                                       gw_dtype dtype, int32_t root, void *stream, gw_work **out_work);
/* Collective. input and output: [size, count]. */
GW_API gw_status gw_gang_all_to_all(gw_gang *gang, const void *input, void *output, size_t count,
                                    gw_dtype dtype, void *stream);
/* Collective. Starts gw_gang_all_to_all and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_all_to_all_async(gw_gang *gang, const void *input, void *output, size_t count,
                                          gw_dtype dtype, void *stream, gw_work **out_work);
/* Collective over this rank and `peer`, which receives as many elements of the same dtype. INVALID_STATE: memory of CUDA
 * on a gang of more than two ranks, all of which have called no collective yet: NCCL makes a communicator of all. Of two
 * ranks, the first message makes it, and waits for the peer's. */
GW_API gw_status gw_gang_send(gw_gang *gang, const void *input, size_t count, gw_dtype dtype, int32_t peer,
                              void *stream);
/* Collective. Starts gw_gang_send and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_send_async(gw_gang *gang, const void *input, size_t count, gw_dtype dtype,
                                    int32_t peer, void *stream, gw_work **out_work);
/* Collective over this rank and `peer`, which sends as many elements of the same dtype. */
GW_API gw_status gw_gang_recv(gw_gang *gang, void *output, size_t count, gw_dtype dtype, int32_t peer,
                              void *stream);
/* Collective. Starts gw_gang_recv and returns; buffers belong to the collective until the work is done. The
 * caller releases *out_work. */
GW_API gw_status gw_gang_recv_async(gw_gang *gang, void *output, size_t count, gw_dtype dtype, int32_t peer,
                                    void *stream, gw_work **out_work);

/* Local, never blocks. *out_ready = 1: `peer` has sent a message that no receive of this rank has asked for yet; the
 * next gw_gang_recv from it gets that one, which has *out_count elements of *out_dtype. 0: there is none yet. A loop
 * over the peers makes a receive from any rank. All outstanding works of this rank progress. INVALID_ARGUMENT: a peer
 * outside of the gang; NOT_SUPPORTED: engines fake, mpi and nccl; with a broken gang as a collective. */
GW_API gw_status gw_gang_probe(gw_gang *gang, int32_t peer, int32_t *out_ready, size_t *out_count,
                               gw_dtype *out_dtype);

/* Collective. The root's bytes on every rank (elsewhere `data` is not read); the caller releases *out_bytes.
 * It has no asynchronous form, because its second half begins only when the size is known. */
GW_API gw_status gw_gang_broadcast_bytes(gw_gang *gang, const void *data, size_t size, int32_t root,
                                         gw_bytes **out_bytes);
/* Collective. Every rank's bytes one after the other; out_sizes[size of the gang]. The caller releases
 * *out_bytes. */
GW_API gw_status gw_gang_all_gather_bytes(gw_gang *gang, const void *data, size_t size, size_t out_sizes[],
                                          gw_bytes **out_bytes);
/* Collective. The root's flag (0 or 1) on every rank. */
GW_API gw_status gw_gang_broadcast_flag(gw_gang *gang, int32_t flag, int32_t root, int32_t *out_flag);
/* Collective. Starts gw_gang_broadcast_flag: *out_flag is the collective's own memory until the work is done;
 * the caller releases *out_work. */
GW_API gw_status gw_gang_broadcast_flag_async(gw_gang *gang, int32_t flag, int32_t root, int32_t *out_flag,
                                              gw_work **out_work);
/* Collective. The sum of all ranks' values. */
GW_API gw_status gw_gang_all_sum(gw_gang *gang, double value, double *out_sum);
/* Collective. Starts gw_gang_all_sum: *out_sum is the collective's own memory until the work is done; the
 * caller releases *out_work. */
GW_API gw_status gw_gang_all_sum_async(gw_gang *gang, double value, double *out_sum, gw_work **out_work);

/* --- works ------------------------------------------------------------------------------------------------------- */

/* Local, never blocks. *out_done = 1: the output is ready and the input reusable. A failure of the work is
 * returned, with its code (GANG, PEER_LOST, TIMEOUT, MISMATCH, ABORTED). */
GW_API gw_status gw_work_poll(gw_work *work, int32_t *out_done);
/* Local. Waits until the output is ready and the input reusable; timeout_ms -1: until the gang's deadline.
 * NOT_READY: time ran out, harmless. CALLER: the interrupt hook, harmless too. Else the failure of the work,
 * as gw_work_poll returns it. All outstanding works of this rank progress while it waits. */
GW_API gw_status gw_work_wait(gw_work *work, int64_t timeout_ms);
/* Local. The same for many, within timeout_ms for all; the first failure is returned, NOT_READY as in
 * gw_work_wait. */
GW_API gw_status gw_work_wait_many(gw_work *const *works, size_t work_count, int64_t timeout_ms);
/* Local. Later work on `stream` waits for the output; on a CPU the host waits, until the gang's deadline.
 * TIMEOUT, or another failure of the work. INVALID_ARGUMENT: a stream on a CPU. */
GW_API gw_status gw_work_order(gw_work *work, void *stream);
/* Local, never blocks. OK, or the failure of the work (PEER_LOST and so on), as in gw_work_poll. */
GW_API gw_status gw_work_error(gw_work *work);
/* Local. Keeps a caller's object until the work is done: free_object runs once, inside a later poll, wait or
 * release, or at once if this call fails. INVALID_ARGUMENT: null work. */
GW_API gw_status gw_work_attach(gw_work *work, void *object, gw_free_fn free_object);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_work *gw_work_retain(gw_work *work);
/* Local. Neither cancels nor waits. */
GW_API void gw_work_release(gw_work *work);

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
