/* Stores: where the ranks of a new gang meet. gw_gang_create alone uses a store, on the thread that calls
 * it. */
#ifndef GANGWAY_STORE_H
#define GANGWAY_STORE_H

#include <gangway/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_store gw_store;

/* A caller's own store. Each function returns GW_OK or another status; then the call that used the store
 * fails with GW_E_CALLER and a text that names the function, the key and the status. gw_gang_create calls
 * them on its own thread, and on no other. */
typedef struct gw_store_callbacks {
  size_t struct_size;
  const gw_ext *next;
  /* Stores `size` bytes under the key. */
  gw_status (*put)(void *user, const char *key, const void *value, size_t size);
  /* Copies at most `capacity` bytes of the key's value. Sets *out_size to the size of the whole value, or to
   * -1 if the key is absent. */
  gw_status (*get)(void *user, const char *key, void *value, size_t capacity, int64_t *out_size);
  /* Forgets the key. */
  gw_status (*remove)(void *user, const char *key);
  void *user;
  gw_free_fn free_user;
} gw_store_callbacks;

/* Local. A store in a folder that all ranks of this host see. The folder is made with mode 0700 if it is
 * absent. The store ignores what an earlier run left there, even if that run was killed. A process that
 * outlived a failed start may start again over the same folder. The caller releases *out_store.
 * INVALID_ARGUMENT: another user owns the folder or may write into it. IO: it cannot be made. */
GW_API gw_status gw_store_create_file(const char *folder, gw_store **out_store);
GW_API void gw_store_callbacks_init(gw_store_callbacks *callbacks, size_t size);
/* Local. A store of the caller's functions. free_user runs once, also when this call fails. The caller
 * releases *out_store. INVALID_ARGUMENT: a callback is null. */
GW_API gw_status gw_store_create_callbacks(const gw_store_callbacks *callbacks, gw_store **out_store);
GW_API gw_store *gw_store_retain(gw_store *store);
GW_API void gw_store_release(gw_store *store);

#ifdef __cplusplus
}
#endif
#endif
