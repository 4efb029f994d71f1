# Julia objects that the library holds: arrays of asynchronous works, callbacks, saved states.
#
# The library frees an object on the thread that drops the last reference, which may be a finalizer in the middle of
# anything. So its free function does plain stores and nothing else: the object is let go at once, its entry in the
# registry is swept later, outside of finalizers.

mutable struct Pin
    object::Any
    frees::Int32
end

const PINS = Pin[]
const PINS_LOCK = ReentrantLock()
const PINS_LIMIT = Ref(64) # the next sweep's length, so that sweeping costs the same per pin whatever their number

# Keeps `object` until the library frees the returned address (through FREE_PIN).
function pin(object)
    made = Pin(object, 0)
    lock(PINS_LOCK)
    try
        push!(PINS, made)
    finally
        unlock(PINS_LOCK)
    end
    length(PINS) >= PINS_LIMIT[] && sweep()
    return made
end

address(pin::Pin) = pointer_from_objref(pin)
pinned(user::Ptr{Cvoid}) = (unsafe_pointer_to_objref(user)::Pin).object

function free_pin(user::Ptr{Cvoid})
    user == C_NULL && return nothing
    found = unsafe_pointer_to_objref(user)::Pin
    found.frees += Int32(1)
    found.object = nothing
    return nothing
end

# Forgets what the library has freed; returns how many objects it still holds.
function sweep()
    lock(PINS_LOCK)
    try
        filter!(p -> p.frees == 0, PINS)
        PINS_LIMIT[] = max(64, 2 * length(PINS))
        return length(PINS)
    finally
        unlock(PINS_LOCK)
    end
end

const FREE_PIN = Ref(C_NULL)
