/* Meshes: the ranks of a root gang along named axes, from the slowest to the fastest: pp, dp_replicate,
 * dp_shard, cp, tp. With the degrees R of dp_replicate, D of dp_shard, C of cp and T of tp, rank = (((pp*R +
 * rep)*D + shard)*C + cp)*T + tp. */
#ifndef GANGWAY_MESH_H
#define GANGWAY_MESH_H

#include <gangway/gang.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The gangs of a mesh: root, dp, rdp, sdp, tp, pp, cp and any product of axes. */
typedef struct gw_gangs gw_gangs;

/* The degree of each axis. */
typedef struct gw_mesh_options {
  size_t struct_size;
  const gw_ext *next;
  int32_t pp;           /* Default 1. */
  int32_t dp_replicate; /* Default 1. */
  int32_t dp_shard; /* Default -1: the ranks divided by the other degrees. At most one degree may be -1. */
  int32_t cp;       /* Default 1. */
  int32_t tp;       /* Default 1. */
  int32_t reserved;
} gw_mesh_options;

GW_API void gw_mesh_options_init(gw_mesh_options *options, size_t size);
/* Local. Sets the degrees of `options`, which gw_mesh_options_init set up, to those of a preset: "single",
 * "ddp" (dp_replicate), "fsdp" (dp_shard), "hsdp" (dp_shard = node_size, dp_replicate for the rest), "tp",
 * "tp+fsdp" (tp = node_size, dp_shard for the rest), "pp", "3d" (pp 2, tp 2, dp_shard for the rest).
 * `node_size` is the number of ranks of a node, at least 1; "hsdp" and "tp+fsdp" read it. INVALID_ARGUMENT:
 * another name (the text lists the names), or node_size. */
GW_API gw_status gw_mesh_options_preset(gw_mesh_options *options, const char *preset, int32_t node_size);
/* Collective over `root`. Makes the gangs of a mesh. A null root is a new root gang from the environment.
 * With null options all ranks are dp_shard. The caller releases *out_gangs, which holds the root.
 * INVALID_ARGUMENT, on every rank: the product of the degrees is not the number of ranks; the text prints the
 * equation. */
GW_API gw_status gw_gangs_create(gw_gang *root, const gw_mesh_options *options, gw_gangs **out_gangs);
/* Collective over `root`. Makes the gangs of a mesh with the given degrees of tp, pp and cp; the rest is dp.
 * The caller releases *out_gangs. INVALID_ARGUMENT: a degree is below 1, or does not divide the
 * size. */
GW_API gw_status gw_gangs_create_parallel(gw_gang *root, int32_t tp, int32_t pp, int32_t cp,
                                          gw_gangs **out_gangs);
/* Collective. Splits dp into sdp, within a node of `intra_node_size` ranks, and rdp. If intra_node_size is 0,
 * sdp is dp and rdp has one rank. The caller releases *out_gangs. INVALID_ARGUMENT: intra_node_size does not
 * divide dp, or cp is over 1. */
GW_API gw_status gw_gangs_create_fsdp(gw_gangs *gangs, int32_t intra_node_size, gw_gangs **out_gangs);
/* Gangs that the caller made, one for each place. */
typedef struct gw_gang_places {
  size_t struct_size;
  const gw_ext *next;
  gw_gang *root;
  gw_gang *dp;  /* dp_replicate x dp_shard */
  gw_gang *rdp; /* dp_replicate */
  gw_gang *sdp; /* dp_shard */
  gw_gang *tp;
  gw_gang *pp;
  gw_gang *cp;
} gw_gang_places;
GW_API void gw_gang_places_init(gw_gang_places *places, size_t size);
/* Collective over places->root. Makes a mesh of the caller's gangs, whose sizes are the degrees. The result
 * holds the gangs, and gw_gangs_shutdown leaves them alone. The caller releases *out_gangs. INVALID_ARGUMENT:
 * a missing gang, sizes whose product is not root's size, members other than the mesh's. It comes on every
 * rank, unless the root is missing. */
GW_API gw_status gw_gangs_create_of(const gw_gang_places *places, gw_gangs **out_gangs);
/* Local. Makes a mesh of one rank with a fake gang in every place. For a mesh of any degrees without peers,
 * give gw_gangs_create a root of gw_gang_create_fake; gw_gang_flight_record lists what was called on each
 * gang. A null device is "cpu". The caller releases *out_gangs. INVALID_ARGUMENT, NOT_SUPPORTED: the
 * device. */
GW_API gw_status gw_gangs_create_fake(const char *device, gw_gangs **out_gangs);
GW_API gw_gangs *gw_gangs_retain(gw_gangs *gangs);
GW_API void gw_gangs_release(gw_gangs *gangs);

/* Local. Gives the gang of "root", "dp", "rdp", "sdp", "tp", "pp", "cp", of an axis, or of any product of
 * axes joined by '+'. The caller releases *out_gang. INVALID_ARGUMENT: an unknown axis or one named twice.
 * INVALID_STATE: after shutdown. */
GW_API gw_status gw_gangs_get(gw_gangs *gangs, const char *axes, gw_gang **out_gang);
/* Local. Gives the degree of an axis and this rank's coordinate on it. INVALID_ARGUMENT: an unknown axis, a
 * product of axes. */
GW_API gw_status gw_gangs_coordinate(const gw_gangs *gangs, const char *axis, int32_t *out_index,
                                     int32_t *out_degree);
/* Local. Gives the rows of the global batch that this rank reads: part *out_index of *out_count equal parts.
 * Ranks that differ only on tp, cp or pp read the same part, with whole sequences: gw_train_step,
 * gw_eval_step and gw_module_forward cut them over cp. INVALID_ARGUMENT: null. */
GW_API gw_status gw_gangs_data_shard(const gw_gangs *gangs, int32_t *out_index, int32_t *out_count);
/* Collective. Shuts down in order all gangs that `gangs` made, except broken ones. timeout_ms is in
 * milliseconds; -1 means the gangs' deadlines. A second call does nothing. TIMEOUT, PEER_LOST: the first
 * failure, after all gangs were tried. */
GW_API gw_status gw_gangs_shutdown(gw_gangs *gangs, int64_t timeout_ms);
/* Local, any thread, and in a signal handler. Breaks the root and all gangs that `gangs` made, as
 * gw_gang_abort breaks one. INVALID_ARGUMENT: gangs is null. */
GW_API gw_status gw_gangs_abort(gw_gangs *gangs, const char *reason);

/* Local. Pushes `gangs` on the calling thread's stack of current gangs, which holds a reference. Calls that
 * take null gangs use the top of the stack. INVALID_ARGUMENT: null. */
GW_API gw_status gw_gangs_push_current(gw_gangs *gangs);
/* Local. Pops `gangs`, which must be on top of the stack. INVALID_STATE: the top is another one, or the stack
 * is empty. */
GW_API gw_status gw_gangs_pop_current(gw_gangs *gangs);
/* Local. Gives the top of this thread's stack. If the stack is empty, a null device gives null (and OK), and
 * any other device gives that device's default: what gw_gangs_set_default set, else fake gangs of one. The
 * caller releases *out_gangs. INVALID_ARGUMENT, NOT_SUPPORTED: the device. */
GW_API gw_status gw_gangs_current(const char *device, gw_gangs **out_gangs);
/* Local. Sets the default gangs of a device for this thread, which holds a reference. Null gangs set the
 * default back to fake gangs of one. INVALID_ARGUMENT: device is null. */
GW_API gw_status gw_gangs_set_default(const char *device, gw_gangs *gangs);

#ifdef __cplusplus
}
#endif
#endif
