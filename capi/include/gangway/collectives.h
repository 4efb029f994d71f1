/* Collectives: what the ranks of a gang do together. Roots and peers are ranks of the gang.
 *
 * Collectives on one gang from several threads run one by one, in the order of the calls. On a CPU the plain
 * form is done when it returns. The _async form returns a work; only gw_work_wait and gw_work_order order
 * other work after it. Collectives in flight run in the order of the calls, so one may read or overwrite what
 * an earlier one writes or reads. Sends and receives are ordered only against those of the same pair of
 * ranks, and their buffers must not overlap with others in flight. A send may wait for its receive, whatever
 * its size: where two ranks both send first, an exchange belongs in one gw_gang_run_batch.
 *
 * On GPUs sends and receives, too, run in the order of the rank's calls among its collectives. So two ranks
 * that both receive first wait for each other until their deadline. An exchange belongs in one
 * gw_gang_run_batch.
 *
 * On CPUs the library's own engines sum bf16 and f16 in f32, in the order of the ranks, and round once. On
 * GPUs NCCL sums, in an order of its own, and may round at each of the size - 1 hops. So a sum's error is at
 * most (size - 1) * u times the sum of the magnitudes, where u is 2^-8 for bf16 and 2^-11 for f16, and a
 * partial sum of f16 may overflow. f32 and f64 are summed in their own type. A model's gradients are reduced
 * in f32 unless its options say otherwise.
 *
 * A null `stream` is the rank's own. Another stream must live until the gang is released.
 *
 * If one rank refuses a call for its arguments, the collective has not begun there and the gang is not
 * broken. Peers in the call wait until that rank makes the call with correct arguments, or until their
 * deadline; gw_gang_abort ends their wait at once. If a collective fails after it began, the gang is broken:
 * outputs are undefined, and every later call returns the first error.
 *
 * Every collective returns INVALID_ARGUMENT for a null buffer, for a dtype or reduce that it does not take,
 * for a root or peer outside of the gang, and for buffers that overlap in another way than in place. It
 * returns INVALID_STATE after shutdown. With a broken gang it returns MISMATCH (ranks made different calls,
 * or gave different counts), PEER_LOST, TIMEOUT, ABORTED, CALLER (the interrupt hook) or GANG. The caller
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
  GW_MEAN = 2, /* The sum divided by the gang's size; floating types only. */
  GW_PRODUCT = 3,
  GW_MIN = 4, /* For bool: and. */
  GW_MAX = 5  /* For bool: or. */
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

/* One collective as a record, which gw_gang_run starts. */
typedef struct gw_collective {
  size_t struct_size;
  const gw_ext *next;
  const void *input;
  void *output;
  /* A number of elements. all_reduce, broadcast, reduce, send and recv: of the whole. all_gather and gather:
   * of one rank's input. reduce_scatter and scatter: of one rank's output. all_to_all: for each peer. */
  size_t count;
  /* Null, or what replaces count: one number for each rank. For all_to_all these are the counts to send, then
   * the counts to receive. */
  const size_t *counts;
  gw_op op; /* Required; the default is GW_OP_INVALID. */
  gw_dtype dtype;
  gw_reduce reduce;
  int32_t peer;       /* The root, or the other end of send and recv. Default -1: none. */
  int32_t accumulate; /* 1: output += result (all_reduce, reduce_scatter and reduce of floating types). */
  int32_t reserved;
} gw_collective;

GW_API void gw_collective_init(gw_collective *record, size_t size);
/* Collective. Starts one record. If out_work is null, the call waits instead. */
GW_API gw_status gw_gang_run(gw_gang *gang, const gw_collective *record, void *stream, gw_work **out_work);
/* Collective. Starts all records as one launch, in which sends and receives cannot deadlock. If out_work is
 * null, the call waits instead. */
GW_API gw_status gw_gang_run_batch(gw_gang *gang, const gw_collective *records, size_t record_count,
                                   void *stream, gw_work **out_work);

/* Collective. Returns when every rank has called it. */
GW_API gw_status gw_gang_barrier(gw_gang *gang, void *stream);
GW_API gw_status gw_gang_barrier_async(gw_gang *gang, void *stream, gw_work **out_work);
/* Collective. Reduces over the ranks, element by element, and gives every rank the result. input and output:
 * `count` elements. It runs in place when they are equal. */
GW_API gw_status gw_gang_all_reduce(gw_gang *gang, const void *input, void *output, size_t count,
                                    gw_dtype dtype, gw_reduce reduce, void *stream);
GW_API gw_status gw_gang_all_reduce_async(gw_gang *gang, const void *input, void *output, size_t count,
                                          gw_dtype dtype, gw_reduce reduce, void *stream, gw_work **out_work);
/* Collective. Gives every rank the inputs of all ranks, in the order of the ranks. input: `count` elements.
 * output: [size, count]. It runs in place when input == output + rank * count. */
GW_API gw_status gw_gang_all_gather(gw_gang *gang, const void *input, void *output, size_t count,
                                    gw_dtype dtype, void *stream);
GW_API gw_status gw_gang_all_gather_async(gw_gang *gang, const void *input, void *output, size_t count,
                                          gw_dtype dtype, void *stream, gw_work **out_work);
/* Collective. Gathers as gw_gang_all_gather does, into one buffer for each rank: outputs[size], each of
 * `count` elements. */
GW_API gw_status gw_gang_all_gather_list(gw_gang *gang, const void *input, void *const *outputs, size_t count,
                                         gw_dtype dtype, void *stream);
GW_API gw_status gw_gang_all_gather_list_async(gw_gang *gang, const void *input, void *const *outputs,
                                               size_t count, gw_dtype dtype, void *stream,
                                               gw_work **out_work);
/* Collective. Reduces over the ranks and gives each rank its row of the result. input: [size, count]. output:
 * `count` elements. It runs in place when output == input + rank * count. */
GW_API gw_status gw_gang_reduce_scatter(gw_gang *gang, const void *input, void *output, size_t count,
                                        gw_dtype dtype, gw_reduce reduce, void *stream);
GW_API gw_status gw_gang_reduce_scatter_async(gw_gang *gang, const void *input, void *output, size_t count,
                                              gw_dtype dtype, gw_reduce reduce, void *stream,
                                              gw_work **out_work);
/* Collective. Gives every rank the root's input. input is read on the root only and may be null elsewhere;
 * output is written on every rank. Both have `count` elements. */
GW_API gw_status gw_gang_broadcast(gw_gang *gang, const void *input, void *output, size_t count,
                                   gw_dtype dtype, int32_t root, void *stream);
GW_API gw_status gw_gang_broadcast_async(gw_gang *gang, const void *input, void *output, size_t count,
                                         gw_dtype dtype, int32_t root, void *stream, gw_work **out_work);
/* Collective. Reduces over the ranks and gives the root the result. input and output: `count` elements.
 * output is written on the root only and may be null elsewhere. */
GW_API gw_status gw_gang_reduce(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
                                gw_reduce reduce, int32_t root, void *stream);
GW_API gw_status gw_gang_reduce_async(gw_gang *gang, const void *input, void *output, size_t count,
                                      gw_dtype dtype, gw_reduce reduce, int32_t root, void *stream,
                                      gw_work **out_work);
/* Collective. Gives the root the inputs of all ranks, in the order of the ranks. input: `count` elements.
 * output: [size, count], on the root only; it may be null elsewhere. */
GW_API gw_status gw_gang_gather(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
                                int32_t root, void *stream);
GW_API gw_status gw_gang_gather_async(gw_gang *gang, const void *input, void *output, size_t count,
                                      gw_dtype dtype, int32_t root, void *stream, gw_work **out_work);
/* Collective. Gives each rank its row of the root's input. input: [size, count], on the root only; it may be
 * null elsewhere. output: `count` elements. */
GW_API gw_status gw_gang_scatter(gw_gang *gang, const void *input, void *output, size_t count, gw_dtype dtype,
                                 int32_t root, void *stream);
GW_API gw_status gw_gang_scatter_async(gw_gang *gang, const void *input, void *output, size_t count,
                                       gw_dtype dtype, int32_t root, void *stream, gw_work **out_work);
/* Collective. Row r of the output is this rank's row of the input of rank r. input and output: [size,
 * count]. */
GW_API gw_status gw_gang_all_to_all(gw_gang *gang, const void *input, void *output, size_t count,
                                    gw_dtype dtype, void *stream);
GW_API gw_status gw_gang_all_to_all_async(gw_gang *gang, const void *input, void *output, size_t count,
                                          gw_dtype dtype, void *stream, gw_work **out_work);
/* Collective over this rank and `peer`, which receives as many elements of the same dtype. INVALID_STATE:
 * memory of CUDA on a gang of more than two ranks that have not all called a collective yet, because NCCL
 * makes a communicator of all of them. On a gang of two ranks the first message makes the communicator, and
 * waits for the peer's message. */
GW_API gw_status gw_gang_send(gw_gang *gang, const void *input, size_t count, gw_dtype dtype, int32_t peer,
                              void *stream);
GW_API gw_status gw_gang_send_async(gw_gang *gang, const void *input, size_t count, gw_dtype dtype,
                                    int32_t peer, void *stream, gw_work **out_work);
/* Collective over this rank and `peer`, which sends as many elements of the same dtype. INVALID_STATE as in
 * gw_gang_send. */
GW_API gw_status gw_gang_recv(gw_gang *gang, void *output, size_t count, gw_dtype dtype, int32_t peer,
                              void *stream);
GW_API gw_status gw_gang_recv_async(gw_gang *gang, void *output, size_t count, gw_dtype dtype, int32_t peer,
                                    void *stream, gw_work **out_work);

/* Local, never blocks. Sets *out_ready to 1 if `peer` has sent a message that no receive of this rank has
 * asked for yet. The next gw_gang_recv from that peer gets this message, which has *out_count elements of
 * *out_dtype. Sets *out_ready to 0 if there is no such message yet. A loop over the peers makes a receive
 * from any rank. All outstanding works of this rank make progress. INVALID_ARGUMENT: a peer outside of the
 * gang. NOT_SUPPORTED: the engines fake, mpi and nccl. With a broken gang it fails as a collective does. */
GW_API gw_status gw_gang_probe(gw_gang *gang, int32_t peer, int32_t *out_ready, size_t *out_count,
                               gw_dtype *out_dtype);

/* Collective. Gives every rank the root's `size` bytes; on other ranks `data` is not read. The caller
 * releases *out_bytes. It has no asynchronous form, because its second half begins only when the size is
 * known. */
GW_API gw_status gw_gang_broadcast_bytes(gw_gang *gang, const void *data, size_t size, int32_t root,
                                         gw_bytes **out_bytes);
/* Collective. Gives every rank the bytes of all ranks, one after the other; out_sizes, which has a place for
 * each rank of the gang, gets the number of bytes of each. The caller releases *out_bytes. */
GW_API gw_status gw_gang_all_gather_bytes(gw_gang *gang, const void *data, size_t size, size_t out_sizes[],
                                          gw_bytes **out_bytes);
/* Collective. Gives every rank the root's flag as 0 or 1. */
GW_API gw_status gw_gang_broadcast_flag(gw_gang *gang, int32_t flag, int32_t root, int32_t *out_flag);
/* Collective. Starts gw_gang_broadcast_flag as every _async form does (base.h). *out_flag belongs to the
 * collective until the work is done. */
GW_API gw_status gw_gang_broadcast_flag_async(gw_gang *gang, int32_t flag, int32_t root, int32_t *out_flag,
                                              gw_work **out_work);
/* Collective. Gives every rank the sum of the values of all ranks. */
GW_API gw_status gw_gang_all_sum(gw_gang *gang, double value, double *out_sum);
/* Collective. Starts gw_gang_all_sum as every _async form does (base.h). *out_sum belongs to the collective
 * until the work is done. */
GW_API gw_status gw_gang_all_sum_async(gw_gang *gang, double value, double *out_sum, gw_work **out_work);

#ifdef __cplusplus
}
#endif
#endif
