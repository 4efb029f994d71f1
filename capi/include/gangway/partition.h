/* Partitions: workers, which are ranks of a gang, in a grid, and the movements of tensors between them. Each
 * movement has a forward and a backward, which is its adjoint. The inner product is the sum over all ranks,
 * so a tensor that several workers hold counts once for each of them. The dims of a partition are its axes;
 * worker i has the row-major index i. */
#ifndef GANGWAY_PARTITION_H
#define GANGWAY_PARTITION_H

#include <gangway/gang.h>
#include <gangway/view.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A list of workers in a grid. A rank that is no worker is inactive; it holds the partition, too. */
typedef struct gw_partition gw_partition;
/* One movement of tensors over a partition, or from one partition to another. */
typedef struct gw_movement gw_movement;

/* --- geometry: all local; ranks that make the same calls hold the same partitions ----------------------- */

/* Local. Makes a partition of all ranks of `gang`, in one dim. It keeps the gang. The caller releases
 * *out_partition. INVALID_ARGUMENT: null. */
GW_API gw_status gw_partition_create(gw_gang *gang, gw_partition **out_partition);
/* Local. Makes a partition of the workers `workers` of this one, in that order, in one dim. The caller
 * releases *out_partition. INVALID_ARGUMENT: no worker, one twice, one outside of [0, size). */
GW_API gw_status gw_partition_inclusive(const gw_partition *partition, const int32_t *workers,
                                        size_t worker_count, gw_partition **out_partition);
/* Local. Makes a partition of the workers of `partition`, then those of `other` that are not among them, in
 * one dim. The caller releases *out_partition. INVALID_ARGUMENT: partitions of two gangs. */
GW_API gw_status gw_partition_union(const gw_partition *partition, const gw_partition *other,
                                    gw_partition **out_partition);
/* Local. Makes a partition of the same workers in a grid of `shape`, row-major, with the last dim fastest.
 * The caller releases *out_partition. INVALID_ARGUMENT: no dim or more than 8, a dim below 1, a product that
 * is not the number of workers. */
GW_API gw_status gw_partition_cartesian(const gw_partition *partition, const int32_t *shape, size_t dim_count,
                                        gw_partition **out_partition);
/* Local. Makes a partition of the workers that share this rank's index on all dims but `kept`, in a grid of
 * the kept dims. So each group of ranks gets another partition, and an inactive rank one without workers. The
 * caller releases *out_partition. INVALID_ARGUMENT: no dim, a dim that is not there, one twice. */
GW_API gw_status gw_partition_subtopology(const gw_partition *partition, const int32_t *kept,
                                          size_t kept_count, gw_partition **out_partition);
GW_API gw_partition *gw_partition_retain(gw_partition *partition);
GW_API void gw_partition_release(gw_partition *partition);

typedef struct gw_partition_info {
  size_t struct_size;
  const gw_ext *next;
  int32_t active;   /* 1: this rank is a worker. */
  int32_t rank;     /* The number of this worker in the partition; -1 on an inactive rank. */
  int32_t size;     /* The number of workers. */
  int32_t ndim;     /* The dims of shape and index. */
  int64_t shape[8]; /* The number of workers along each dim. */
  int64_t index[8]; /* The place of this worker; zeros on an inactive rank. */
} gw_partition_info;
GW_API void gw_partition_info_init(gw_partition_info *info, size_t size);
/* Local. Fills *info. INVALID_ARGUMENT: null, or a struct_size that is too small. */
GW_API gw_status gw_partition_describe(const gw_partition *partition, gw_partition_info *info);
/* Local. Gives the workers before and after this one along `dim`; -1 where this worker is at the edge, or the
 * rank is inactive. INVALID_ARGUMENT: a dim that is not there. */
GW_API gw_status gw_partition_neighbors(const gw_partition *partition, int32_t dim, int32_t *out_before,
                                        int32_t *out_after);

/* --- movement ------------------------------------------------------------------------------------------- */

/* | kind           | forward                                               | backward       |
 * |----------------|-------------------------------------------------------|----------------| | all_gather
 * | joins the pieces along one dim on every worker        | reduce_scatter | | reduce_scatter | sums, each
 * worker keeps its balanced piece of one dim | all_gather     | | all_sum_reduce | sums along some dims, on
 * every worker                 | the same       | | broadcast      | from each worker of a source to those of
 * a target     | sum_reduce     | | sum_reduce     | sums those of a source on a worker of the target      |
 * broadcast      | | repartition    | a tensor cut over the source, cut over the target     | the reverse
 * |
 *
 * In all_gather, reduce_scatter and repartition, dim d of the partition cuts dim d of the tensor. Pieces may
 * differ in size and may be empty. A balanced cut of n elements over P workers gives n / P to each, and one
 * more to the first n % P. Broadcast follows NumPy's rule: shapes align at the last dim, and a dim of the
 * source is that of the target or 1. sum_reduce is the reverse of broadcast. */
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
  /* For all_gather and reduce_scatter (at most one dim) and all_sum_reduce (any number): the dims of the
   * partition along which workers exchange, or, in axes_keep, those along which they do not. One of the two
   * is given, and the other is null. An empty list is a pointer that is not null and a count of 0: over no
   * dims each worker gets a copy of its own tensor. */
  const int32_t *axes;
  size_t axis_count;
  const int32_t *axes_keep;
  size_t keep_count;
  double backward_scale; /* Gradients are multiplied by it. Default 1. */
  /* What a rank that gets nothing has. Default 0: shape [0]. 1: shape [batch, 0] of an input [batch, ...]. */
  int32_t preserve_batch;
  int32_t transpose_source; /* 1, for broadcast and sum_reduce: the dims of the source in reverse order. */
  int32_t transpose_target; /* 1: likewise, those of the target. */
  int32_t reserved;
} gw_movement_options;
GW_API void gw_movement_options_init(gw_movement_options *options, size_t size);
/* Collective over the gang of the partitions, inactive ranks included. Refusals are agreed. Makes a movement.
 * `target` is given for broadcast, sum_reduce and repartition, and is null for the others. The caller
 * releases *out_movement. INVALID_ARGUMENT: axes given wrongly, a target that is missing or not wanted,
 * shapes of partitions that do not fit. MISMATCH: ranks ask for different movements. */
GW_API gw_status gw_movement_create(const gw_partition *source, const gw_partition *target,
                                    gw_movement_kind kind, const gw_movement_options *options,
                                    gw_movement **out_movement);
GW_API gw_movement *gw_movement_retain(gw_movement *movement);
GW_API void gw_movement_release(gw_movement *movement);
/* Local. Makes another handle of the same movement, which keeps a forward of its own: several forwards before
 * their backwards, as autograd runs them, take a duplicate each. All ranks run the calls of a movement and of
 * its duplicates in one order. The caller releases *out_movement. INVALID_ARGUMENT: null. */
GW_API gw_status gw_movement_duplicate(const gw_movement *movement, gw_movement **out_movement);
/* Collective over the gang of the partitions, inactive ranks included; one thread at a time. Refusals are
 * agreed. Moves `input`. A rank that is no worker of the source passes a tensor of no elements, and a rank
 * that gets nothing gets one. The result is never the input's memory. The caller releases *out_tensor.
 * `stream` is the device's; null is its own. Calls on several streams run in the order of the calls.
 * INVALID_ARGUMENT: null, shapes or dtypes that do not meet, elements on an inactive rank. */
GW_API gw_status gw_movement_forward(gw_movement *movement, const gw_view *input, void *stream,
                                     gw_tensor **out_tensor);
/* Collective, as gw_movement_forward is. Gives the gradient of the input of this handle's last forward from
 * that of its output, by the adjoint. It may be called any number of times after a forward. The caller
 * releases *out_tensor. INVALID_STATE: there was no forward. INVALID_ARGUMENT: another shape or dtype than
 * the output's. */
GW_API gw_status gw_movement_backward(gw_movement *movement, const gw_view *output_grad, void *stream,
                                      gw_tensor **out_tensor);

#ifdef __cplusplus
}
#endif
#endif
