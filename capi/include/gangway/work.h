/* Works: collectives that were started and may still run. On a CPU the plain form of a collective is done
 * when it returns; the _async form returns a work, and only gw_work_wait and gw_work_order order other work
 * after its result. */
#ifndef GANGWAY_WORK_H
#define GANGWAY_WORK_H

#include <gangway/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_work gw_work;

/* Local, never blocks. Sets *out_done to 1 if the output is ready and the input may be used again, else to 0.
 * A failure of the work is returned with its code (GANG, PEER_LOST, TIMEOUT, MISMATCH, ABORTED). */
GW_API gw_status gw_work_poll(gw_work *work, int32_t *out_done);
/* Local. Waits until the output is ready and the input may be used again, for at most timeout_ms
 * milliseconds; -1 waits until the gang's deadline. All outstanding works of this rank make progress
 * meanwhile. NOT_READY: the time ran out, which breaks nothing. CALLER: the interrupt hook ended the wait,
 * which breaks nothing either. Any other code is the failure of the work, as gw_work_poll returns it. */
GW_API gw_status gw_work_wait(gw_work *work, int64_t timeout_ms);
/* Local. Waits as gw_work_wait does, for many works, within timeout_ms milliseconds for all of them. Returns
 * the first failure; NOT_READY and CALLER as in gw_work_wait. */
GW_API gw_status gw_work_wait_many(gw_work *const *works, size_t work_count, int64_t timeout_ms);
/* Local. Orders later work on `stream` after the output. On a CPU the host waits instead, until the gang's
 * deadline. TIMEOUT, or another failure of the work. INVALID_ARGUMENT: a stream on a CPU. */
GW_API gw_status gw_work_order(gw_work *work, void *stream);
/* Local, never blocks. Returns GW_OK, or the failure of the work (PEER_LOST and so on) as gw_work_poll
 * does. */
GW_API gw_status gw_work_error(gw_work *work);
/* Local. Keeps a caller's object until the work is done. free_object runs once, inside a later poll, wait or
 * release, or at once if this call fails. INVALID_ARGUMENT: work is null. */
GW_API gw_status gw_work_attach(gw_work *work, void *object, gw_free_fn free_object);
GW_API gw_work *gw_work_retain(gw_work *work);
/* Local, any thread. Gives one reference back. It neither cancels the work nor waits for it. Null is
 * allowed. */
GW_API void gw_work_release(gw_work *work);

#ifdef __cplusplus
}
#endif
#endif
