/* Stores: where the ranks of a new gang meet. A store is used inside of gw_gang_create, and on the thread of that call. */
#ifndef GANGWAY_STORE_H
#define GANGWAY_STORE_H

#include <gangway/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_store gw_store;

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

#ifdef __cplusplus
}
#endif
#endif
