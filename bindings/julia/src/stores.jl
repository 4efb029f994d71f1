# Stores: where ranks meet.

"A folder that all ranks of this host see."
FileStore(folder) = take(Store, out -> LibGangway.gw_store_create_file(c_text("FileStore", "folder", folder), out))

struct StoreFunctions
    put::Any
    get::Any
    remove::Any
end

"""
    Store(put, get, remove)

A store of the caller's: `put(key, bytes)`, `get(key)` (a `Vector{UInt8}`, or nothing when the key is absent),
`remove(key)`. Called on the thread that makes the gang.
"""
function Store(put, get, remove)
    # The library frees it, also when the call fails.
    held = pin(StoreFunctions(put, get, remove))
    callbacks = options(LibGangway.gw_store_callbacks, "Store", NamedTuple())
    for (name, value) in ((:put, STORE_PUT[]), (:get, STORE_GET[]), (:remove, STORE_REMOVE[]),
                          (:user, address(held)), (:free_user, FREE_PIN[]))
        set_field!(callbacks, name, value)
    end
    return take(Store, out -> LibGangway.gw_store_create_callbacks(callbacks, out))
end

store_put(user::Ptr{Cvoid}, key::Ptr{Cchar}, value::Ptr{Cvoid}, size::Csize_t) = guarded() do
    bytes = size == 0 ? UInt8[] : copy(unsafe_wrap(Array, Ptr{UInt8}(value), Int(size)))
    pinned(user).put(unsafe_string(key), bytes)
end

store_get(user::Ptr{Cvoid}, key::Ptr{Cchar}, value::Ptr{Cvoid}, capacity::Csize_t, size::Ptr{Int64}) = guarded() do
    found = pinned(user).get(unsafe_string(key))
    unsafe_store!(size, found === nothing ? -1 : length(found))
    found === nothing && return
    GC.@preserve found unsafe_copyto!(Ptr{UInt8}(value), pointer(found), min(length(found), Int(capacity)))
end

store_remove(user::Ptr{Cvoid}, key::Ptr{Cchar}) = guarded() do
    pinned(user).remove(unsafe_string(key))
end

const STORE_PUT, STORE_GET, STORE_REMOVE = Ref(C_NULL), Ref(C_NULL), Ref(C_NULL)
function make_store_callbacks()
    STORE_PUT[] = @cfunction(store_put, Int32, (Ptr{Cvoid}, Ptr{Cchar}, Ptr{Cvoid}, Csize_t))
    STORE_GET[] = @cfunction(store_get, Int32, (Ptr{Cvoid}, Ptr{Cchar}, Ptr{Cvoid}, Csize_t, Ptr{Int64}))
    STORE_REMOVE[] = @cfunction(store_remove, Int32, (Ptr{Cvoid}, Ptr{Cchar}))
    return nothing
end
