/* Meshes: the ranks of a root gang along named axes, from the slowest to the fastest: pp, dp_replicate, dp_shard, cp,
 * tp. rank = (((pp*R + rep)*D + shard)*C + cp)*T + tp. */
#ifndef GANGWAY_MESH_H
#define GANGWAY_MESH_H

#include <gangway/gang.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The gangs of a mesh: root, dp, rdp, sdp, tp, pp, cp and any product of axes. */
typedef struct gw_gangs gw_gangs;

typedef struct gw_mesh_options {
  size_t struct_size;
  const gw_ext *next;
  int32_t pp;           /* 1 */
  int32_t dp_replicate; /* 1 */
  int32_t dp_shard;     /* -1: the ranks divided by the other degrees; at most one degree may be -1 */
  int32_t cp;           /* 1 */
  int32_t tp;           /* 1 */
  int32_t reserved;
} gw_mesh_options;

/* Local. Sets up a gw_mesh_options: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_mesh_options_init(gw_mesh_options *options, size_t size);
/* Local. Sets the degrees of `options`, which gw_mesh_options_init set up, to those of a preset: "single", "ddp"
 * (dp_replicate), "fsdp" (dp_shard), "hsdp" (dp_shard = node_size, dp_replicate for the rest), "tp", "tp+fsdp" (tp =
 * node_size, dp_shard for the rest), "pp", "3d" (pp 2, tp 2, dp_shard for the rest). `node_size`: ranks of a node, 1 or
 * more; read by hsdp and tp+fsdp. INVALID_ARGUMENT: another name, which the text lists; node_size. */
GW_API gw_status gw_mesh_options_preset(gw_mesh_options *options, const char *preset, int32_t node_size);
/* Collective over `root`; null: a new root gang from the environment. A product that does not match is
 * INVALID_ARGUMENT, on every rank, and the text prints the equation. Null options: all ranks are dp_shard.
 * The caller releases *out_gangs, which holds the root. */
GW_API gw_status gw_gangs_create(gw_gang *root, const gw_mesh_options *options, gw_gangs **out_gangs);
/* Collective. tp, pp and cp by degree, the rest is dp. The caller releases *out_gangs. INVALID_ARGUMENT:
 * a degree below 1, or one that does not divide the size. */
GW_API gw_status gw_gangs_create_parallel(gw_gang *root, int32_t tp, int32_t pp, int32_t cp,
                                          gw_gangs **out_gangs);
/* Collective. Splits dp into sdp (within a node of `intra_node_size` ranks) and rdp; 0: sdp is dp, rdp one
 * rank. The caller releases *out_gangs. INVALID_ARGUMENT: intra_node_size does not divide dp, or cp is over 1. */
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
/* Local. Sets up a gw_gang_places: zeroes all `size` bytes, sets struct_size and the defaults that its fields name. */
GW_API void gw_gang_places_init(gw_gang_places *places, size_t size);
/* Collective over places->root. The sizes of the gangs are the degrees; the result holds the gangs, and
 * gw_gangs_shutdown leaves them alone. The caller releases *out_gangs. INVALID_ARGUMENT: a missing gang, sizes that do
 * not make root's, members other than the mesh's; on every rank, but for a missing root. */
GW_API gw_status gw_gangs_create_of(const gw_gang_places *places, gw_gangs **out_gangs);
/* Local. A fake gang of one in every place. Gangs of any mesh without peers: gw_gang_create_fake, then gw_gangs_create
 * with it as root; gw_gang_flight_record lists what was called on each. Null device: "cpu". The caller releases *out_gangs.
 * INVALID_ARGUMENT, NOT_SUPPORTED: the device. */
GW_API gw_status gw_gangs_create_fake(const char *device, gw_gangs **out_gangs);
/* Local, any thread. Takes one more reference and returns its argument; null for null. */
GW_API gw_gangs *gw_gangs_retain(gw_gangs *gangs);
/* Local, any thread, never blocks. Gives one reference back; the last one frees the object. Null is allowed. */
GW_API void gw_gangs_release(gw_gangs *gangs);

/* Local. "root", "dp", "rdp", "sdp", "tp", "pp", "cp", each axis, or any product of axes joined by '+'. The caller
 * releases *out_gang. INVALID_ARGUMENT: an unknown axis or one named twice; INVALID_STATE: after shutdown. */
GW_API gw_status gw_gangs_get(gw_gangs *gangs, const char *axes, gw_gang **out_gang);
/* Local. Degree of an axis and this rank's coordinate on it. INVALID_ARGUMENT: an unknown axis, a product of
 * axes. */
GW_API gw_status gw_gangs_coordinate(const gw_gangs *gangs, const char *axis, int32_t *out_index,
                                     int32_t *out_degree);
/* Local. Which rows of the global batch this rank reads: part *out_index of *out_count (equal on tp, cp, pp).
 * INVALID_ARGUMENT: null. */
GW_API gw_status gw_gangs_data_shard(const gw_gangs *gangs, int32_t *out_index, int32_t *out_count);
/* Collective and orderly: shuts down all gangs that `gangs` made, except broken ones. timeout_ms -1: the gangs'
 * deadlines. TIMEOUT, PEER_LOST: the first failure, after all were tried. A second call does nothing. */
GW_API gw_status gw_gangs_shutdown(gw_gangs *gangs, int64_t timeout_ms);
/* Local, any thread. Breaks the root and all gangs that `gangs` made: calls on them return ABORTED with
 * `reason`. INVALID_ARGUMENT: null gangs. */
GW_API gw_status gw_gangs_abort(gw_gangs *gangs, const char *reason);

/* Local. Pushes `gangs` on the calling thread's stack of current gangs; the stack holds a reference. Calls that take
 * null gangs use the top of the stack.
 * INVALID_ARGUMENT: null. */
GW_API gw_status gw_gangs_push_current(gw_gangs *gangs);
/* Local. Pops `gangs`, which must be on top of the stack. INVALID_STATE: the top is another, or the stack is empty. */
GW_API gw_status gw_gangs_pop_current(gw_gangs *gangs);
/* Local. Null device: the top of this thread's stack, or null (and OK). Otherwise the top; if the stack is empty, the
 * device's default: what gw_gangs_set_default set, else fake gangs of one. The caller releases *out_gangs.
 * INVALID_ARGUMENT, NOT_SUPPORTED: the device. */
GW_API gw_status gw_gangs_current(const char *device, gw_gangs **out_gangs);
/* Local. Sets the default of a device for this thread, which holds a reference; null gangs: fake gangs of one again.
 * INVALID_ARGUMENT: null device. */
GW_API gw_status gw_gangs_set_default(const char *device, gw_gangs *gangs);

#ifdef __cplusplus
}
#endif
#endif
