/* Works: collectives that were started and may still run. Only gw_work_wait and gw_work_order order other work after the
 * result. One thread at a time per work, but for its retain and release. */
#ifndef GANGWAY_WORK_H
#define GANGWAY_WORK_H

#include <gangway/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_work gw_work;

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

#ifdef __cplusplus
}
#endif
#endif
