/* A store of the caller: a list of keys under a lock. */
#ifndef GANGWAY_TESTS_CAPI_OWN_STORE_H
#define GANGWAY_TESTS_CAPI_OWN_STORE_H

#include "testing.h"

/* `creates`: whether this thread is in gw_gang_create. `strays`: calls of a store's functions on threads that
 * are not. */
static MAYBE_UNUSED _Thread_local int creates;
static MAYBE_UNUSED int strays;

typedef struct entry {
  char key[128];
  void* value;
  size_t size;
  struct entry* next;
} entry;
typedef struct own_store {
  pthread_mutex_t lock;
  entry* entries;
  int freed;
  const char* failing; /* "put", "get" or "remove" */
  /* Runs on the thread that calls; may be null. */
  void (*before)(const char* call);
} own_store;

static MAYBE_UNUSED entry* find(own_store* s, const char* key) {
  entry* e = s->entries;
  while (e != NULL && strcmp(e->key, key) != 0) e = e->next;
  return e;
}
static MAYBE_UNUSED int fails(const own_store* s, const char* call) {
  return s->failing != NULL && strcmp(s->failing, call) == 0;
}
static MAYBE_UNUSED gw_status own_put(void* user, const char* key, const void* value, size_t size) {
  own_store* s = user;
  if (s->before != NULL) s->before("put");
  if (fails(s, "put")) return gw_error_set("the shelf is full"), GW_E_IO;
  pthread_mutex_lock(&s->lock);
  strays += !creates;
  entry* e = find(s, key);
  if (e == NULL) {
    e = calloc(1, sizeof *e);
    snprintf(e->key, sizeof e->key, "%s", key);
    e->next = s->entries;
    s->entries = e;
  }
  free(e->value);
  e->value = malloc(size + 1);
  memcpy(e->value, value, size);
  e->size = size;
  pthread_mutex_unlock(&s->lock);
  return GW_OK;
}
static MAYBE_UNUSED gw_status own_get(void* user, const char* key, void* value, size_t capacity,
                                      int64_t* out_size) {
  own_store* s = user;
  if (s->before != NULL) s->before("get");
  if (fails(s, "get")) return 77; /* is no status of the library */
  pthread_mutex_lock(&s->lock);
  strays += !creates;
  const entry* e = find(s, key);
  *out_size = e != NULL && e->value != NULL ? (int64_t)e->size : -1;
  if (*out_size >= 0) memcpy(value, e->value, e->size < capacity ? e->size : capacity);
  pthread_mutex_unlock(&s->lock);
  return GW_OK;
}
static MAYBE_UNUSED gw_status own_remove(void* user, const char* key) {
  own_store* s = user;
  if (s->before != NULL) s->before("remove");
  pthread_mutex_lock(&s->lock);
  strays += !creates;
  entry* e = find(s, key);
  if (e != NULL) {
    free(e->value);
    e->value = NULL;
  }
  pthread_mutex_unlock(&s->lock);
  return GW_OK;
}
static MAYBE_UNUSED void own_free(void* user) { ++((own_store*)user)->freed; }
static MAYBE_UNUSED void clear_store(own_store* s) {
  while (s->entries != NULL) {
    entry* e = s->entries;
    s->entries = e->next;
    free(e->value);
    free(e);
  }
}

static MAYBE_UNUSED gw_store_callbacks callbacks_of(own_store* s) {
  gw_store_callbacks c;
  gw_store_callbacks_init(&c, sizeof c);
  c.put = own_put;
  c.get = own_get;
  c.remove = own_remove;
  c.user = s;
  c.free_user = own_free;
  return c;
}
#endif
