/* Partitions: workers, ranks of a gang, in a grid, and what moves tensors between them: each movement has a forward and
 * its adjoint, the backward. The inner product is the sum over all ranks, so a tensor that several workers hold counts
 * once for each. Dims of a partition are its axes; worker i has the row-major index i. */
#ifndef GANGWAY_PARTITION_H
#define GANGWAY_PARTITION_H

#include <gangway/gang.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A list of workers in a grid. A rank that is no worker is inactive; it holds the partition, too. */
typedef struct gw_partition gw_partition;
/* One movement of tensors over a partition, or from one to another. */
typedef struct gw_movement gw_movement;

/* --- geometry: all local; ranks that make the same calls hold the same partitions --------------------------------- */

/* Local. All ranks of `gang`, in one dim; keeps the gang. The caller releases *out_partition. INVALID_ARGUMENT: null. */
GW_API gw_status gw_partition_create(gw_gang *gang, gw_partition **out_partition);
/* Local. The workers `workers` of this partition, in that order, in one dim. The caller releases *out_partition.
 * INVALID_ARGUMENT: none, one twice, one outside of [0, size). */
GW_API gw_status gw_partition_inclusive(const gw_partition *partition, const int32_t *workers,
                                        size_t worker_count, gw_partition **out_partition);
/* Local. The workers of `partition`, then those of `other` that are not among them, in one dim. The caller releases
 * *out_partition. INVALID_ARGUMENT: partitions of two gangs. */
GW_API gw_status gw_partition_union(const gw_partition *partition, const gw_partition *other,
                                    gw_partition **out_partition);
/* Local. The same workers in a grid of `shape`, row-major, the last dim fastest. The caller releases *out_partition.
 * INVALID_ARGUMENT: no dim or over 8, one below 1, a product that is not the number of workers. */
GW_API gw_status gw_partition_cartesian(const gw_partition *partition, const int32_t *shape, size_t dim_count,
                                        gw_partition **out_partition);
/* Local. The workers that share this rank's index on all dims but `kept`, in a grid of the kept dims: another partition
 * for each group of ranks, and one without workers on an inactive rank. The caller releases *out_partition.
 * INVALID_ARGUMENT: none, a dim that is not there, one twice. */
GW_API gw_status gw_partition_subtopology(const gw_partition *partition, const int32_t *kept,
                                          size_t kept_count, gw_partition **out_partition);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_partition *gw_partition_retain(gw_partition *partition);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_partition_release(gw_partition *partition);

typedef struct gw_partition_info {
  size_t struct_size;
  const gw_ext *next;
  int32_t active;   /* 1: this rank is a worker */
  int32_t rank;     /* of this worker in the partition; -1: inactive */
  int32_t size;     /* workers */
  int32_t ndim;     /* of shape and index */
  int64_t shape[8]; /* workers along each dim */
  int64_t index[8]; /* this worker's place; inactive: zeros */
} gw_partition_info;
/* Local. Sets up a gw_partition_info: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_partition_info_init(gw_partition_info *info, size_t size);
/* Local. Fills *info. INVALID_ARGUMENT: null, or a struct_size that is too small. */
GW_API gw_status gw_partition_describe(const gw_partition *partition, gw_partition_info *info);
/* Local. The workers before and after this one along `dim`; -1: this one is at the edge, or inactive. INVALID_ARGUMENT:
 * a dim that is not there. */
GW_API gw_status gw_partition_neighbors(const gw_partition *partition, int32_t dim, int32_t *out_before,
                                        int32_t *out_after);

/* --- movement ------------------------------------------------------------------------------------------------------ */

/* | kind           | forward                                               | backward       |
 * |----------------|-------------------------------------------------------|----------------|
 * | all_gather     | joins the pieces along one dim on every worker        | reduce_scatter |
 * | reduce_scatter | sums, each worker keeps its balanced piece of one dim | all_gather     |
 * | all_sum_reduce | sums along some dims, on every worker                 | the same       |
 * | broadcast      | from each worker of a source to those of a target     | sum_reduce     |
 * | sum_reduce     | sums those of a source on a worker of the target      | broadcast      |
 * | repartition    | a tensor cut over the source, cut over the target     | the reverse    |
 *
 * In all_gather, reduce_scatter and repartition dim d of the partition cuts dim d of the tensor; pieces may differ in size
 * and be empty. A balanced cut of n over P gives n / P, and one more to the first n % P. Broadcast follows NumPy's rule:
 * shapes align at the last dim; the source's dim is the target's or 1. sum_reduce is its reverse. */
typedef int32_t gw_movement_kind;
enum gw_movement_kind_value {
  GW_MOVEMENT_INVALID = -1,
  GW_MOVEMENT_ALL_GATHER = 0,
  GW_MOVEMENT_REDUCE_SCATTER = 1,
  GW_MOVEMENT_ALL_SUM_REDUCE = 2,
  GW_MOVEMENT_BROADCAST = 3,
  GW_MOVEMENT_SUM_REDUCE = 4,
  GW_MOVEMENT_REPARTITION = 5
};

typedef struct gw_movement_options {
  size_t struct_size;
  const gw_ext *next;
  /* all_gather, reduce_scatter (one) and all_sum_reduce (any): the dims of the partition along which workers exchange,
   * or those along which they do not. One of the two is given; the other is null. */
  const int32_t *axes;
  size_t axis_count;
  const int32_t *axes_keep;
  size_t keep_count;
  double backward_scale;    /* 1; gradients are multiplied by it */
  int32_t preserve_batch;   /* a rank that gets nothing has [0]; 1: [batch, 0] of an input [batch, ...] */
  int32_t transpose_source; /* broadcast, sum_reduce: the dims of the source in reverse order */
  int32_t transpose_target; /* likewise of the target */
  int32_t reserved;
} gw_movement_options;
/* Local. Sets up a gw_movement_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields
 * name. */
GW_API void gw_movement_options_init(gw_movement_options *options, size_t size);
/* Collective over the gang of the partitions, inactive ranks included; all ranks return the first refusal. `target`: of
 * broadcast, sum_reduce and repartition, else null. The caller releases *out_movement. INVALID_ARGUMENT: axes given
 * wrongly, a target that is missing or not wanted, shapes of partitions that do not fit. MISMATCH: ranks that ask for
 * different movements. */
GW_API gw_status gw_movement_create(const gw_partition *source, const gw_partition *target,
                                    gw_movement_kind kind, const gw_movement_options *options,
                                    gw_movement **out_movement);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_movement *gw_movement_retain(gw_movement *movement);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_movement_release(gw_movement *movement);
/* Collective over the gang of the partitions, inactive ranks included; all ranks return the first refusal. A rank that
 * is no worker of the source passes a tensor of no elements, and a rank that gets nothing gets one. The result is never
 * the input's memory; the caller releases *out_tensor. `stream`: the device's, null for its own; calls on several
 * streams run in the order of the calls. INVALID_ARGUMENT: a null, shapes or dtypes that do not meet, elements on an
 * inactive rank. One thread at a time. */
GW_API gw_status gw_movement_forward(gw_movement *movement, const gw_view *input, void *stream,
                                     gw_tensor **out_tensor);
/* Collective likewise, with the refusals agreed. The gradient of the last forward's input, from that of its output, by the adjoint. Any number of
 * times after a forward. The caller releases *out_tensor. INVALID_STATE: before any forward; INVALID_ARGUMENT: another
 * shape or dtype than the output's. */
GW_API gw_status gw_movement_backward(gw_movement *movement, const gw_view *output_grad, void *stream,
                                      gw_tensor **out_tensor);

#ifdef __cplusplus
}
#endif
#endif
