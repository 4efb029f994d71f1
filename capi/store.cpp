// Stores, through which the ranks of a new gang find each other.
#include <gangway/store.h>

#include "gang_handle.h"

using namespace gangway;
using namespace gangway::capi;

namespace {

// A store of the caller. The text that one of its functions passes to gw_error_set becomes part of the
// error's message.
struct CallerStore {
  gw_store_callbacks functions;
  CallerObject owned;
};

template <typename Call>
int call_store(void* user, const char* what, const char* key, Call&& call) {
  run_callback(what, "the caller's store", [&] {
    const gw_status answer = call(static_cast<CallerStore*>(user)->functions);
    check_store_answer(what, key, answer, CallbackText::innermost()->text);
    return GW_OK;
  });
  return 0;
}
int put(void* user, const char* key, const void* value, size_t size) {
  return call_store(user, "put", key,
                    [&](const gw_store_callbacks& f) { return f.put(f.user, key, value, size); });
}
int get(void* user, const char* key, void* value, size_t capacity, int64_t* out_size) {
  return call_store(user, "get", key, [&](const gw_store_callbacks& f) {
    return f.get(f.user, key, value, capacity, out_size);
  });
}
int remove(void* user, const char* key) {
  return call_store(user, "remove", key, [&](const gw_store_callbacks& f) { return f.remove(f.user, key); });
}

}  // namespace

gw_status gw_store_create_file(const char* folder, gw_store** out_store) {
  return guarded([&] {
    gw_store*& result = out(out_store, "out_store");
    result = new gw_store(make_file_store(&required(folder, "folder")));
  });
}

void gw_store_callbacks_init(gw_store_callbacks* callbacks, size_t size) { start_struct(callbacks, size); }

gw_status gw_store_create_callbacks(const gw_store_callbacks* callbacks, gw_store** out_store) {
  CallerObject owned = object_of(callbacks);
  return guarded([&] {
    gw_store*& result = out(out_store, "out_store");
    const gw_store_callbacks c =
        read_struct(&required(callbacks, "callbacks"), gw_store_callbacks_init, "callbacks");
    if (c.put == nullptr || c.get == nullptr || c.remove == nullptr)
      fail(Code::invalid_argument, "callbacks needs put, get and remove");
    // The store keeps the caller's object, which its functions use.
    const auto caller = std::make_shared<CallerStore>(CallerStore{c, std::move(owned)});
    auto store = make_callback_store({put, get, remove, caller.get(), nullptr});
    result =
        new gw_store(std::shared_ptr<Store>(store.get(), [store, caller](Store*) mutable { store.reset(); }));
  });
}

gw_store* gw_store_retain(gw_store* store) { return retain(store); }
void gw_store_release(gw_store* store) { release(store); }
