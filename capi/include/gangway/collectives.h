/* Collectives on a gang.
 *
 * Collectives on one gang from several threads run one by one, in the order of the calls. On a CPU the plain form is
 * done when it returns. The _async form returns a work; only gw_work_wait and gw_work_order order other work after
 * it. Collectives in flight run in the order of the calls, so one may read or overwrite what an earlier one writes or
 * reads. Sends and receives are ordered per pair of ranks only; their buffers must not overlap with others in flight.
 * On GPUs they run in the order of the rank's calls, too, among its collectives: two ranks that both receive first wait for each
 * other until their deadline. An exchange belongs in one gw_gang_run_batch.
 * `stream`: null for the rank's own; another must live until the gang is released. Roots and peers are relative to the gang.
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
#ifndef GANGWAY_COLLECTIVES_H
#define GANGWAY_COLLECTIVES_H

#include <gangway/gang.h>
#include <gangway/work.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
