# Errors, exceptions of callbacks, interrupts.

"""
What a failed call of the library says. The type parameter is the status, so each status has a type of its own:
`Gangway.PeerLost`, `Gangway.Timeout`, `Gangway.InvalidArgument` ... are `GangwayError{:PEER_LOST}` and so on, and
`e.status` is the symbol. Fields: `code`, `message`, `gang`, `rank`, `peer` (-1: does not apply), `op`, `system_error`
(errno or 0), `path` (of the file that the system refused, or ""). `Gangway.IOFailed` has those of a `SystemError`, too:
`errnum` and `prefix`.
"""
struct GangwayError{S} <: Exception
    code::Int32
    message::String
    gang::String
    rank::Int32
    peer::Int32
    op::String
    system_error::Int32
    path::String
end

const InvalidArgument = GangwayError{:INVALID_ARGUMENT}
const NotSupported = GangwayError{:NOT_SUPPORTED}
const InvalidState = GangwayError{:INVALID_STATE}
const GangFailed = GangwayError{:GANG}
const PeerLost = GangwayError{:PEER_LOST}
const Timeout = GangwayError{:TIMEOUT}
const Mismatch = GangwayError{:MISMATCH}
const Aborted = GangwayError{:ABORTED}
const NotReady = GangwayError{:NOT_READY}
const NotFound = GangwayError{:NOT_FOUND}
const Forked = GangwayError{:FORKED}
const CallerFailed = GangwayError{:CALLER}
const OutOfMemory = GangwayError{:OUT_OF_MEMORY}
const IOFailed = GangwayError{:IO}
const Corrupt = GangwayError{:CORRUPT}
const Internal = GangwayError{:INTERNAL}
const Busy = GangwayError{:BUSY}

status_symbol(code) = Symbol(unsafe_string(LibGangway.gw_status_name(code)))

function Base.getproperty(e::GangwayError{S}, name::Symbol) where {S}
    name === :status && return S
    S === :IO && name === :errnum && return getfield(e, :system_error)
    S === :IO && name === :prefix && return getfield(e, :message)
    return getfield(e, name)
end
Base.propertynames(::GangwayError) = (fieldnames(GangwayError)..., :status)
Base.propertynames(::IOFailed) = (fieldnames(GangwayError)..., :status, :errnum, :prefix)

function Base.showerror(io::IO, e::GangwayError{S}) where {S}
    print(io, "Gangway: ", S, ": ", e.message)
end

# What a callback threw on a thread, until the library's call that ran it returns there.
const THROWN = Any[]
const HOOKED = Bool[]
const THREADS_LOCK = Threads.SpinLock()

function resize_threads()
    count = isdefined(Threads, :maxthreadid) ? Threads.maxthreadid() : Threads.nthreads()
    lock(THREADS_LOCK)
    try
        while length(HOOKED) < count
            push!(THROWN, nothing)
            push!(HOOKED, false)
        end
    finally
        unlock(THREADS_LOCK)
    end
    return nothing
end

function remember(exception)
    THROWN[Threads.threadid()] = exception
    return LibGangway.GW_E_CALLER
end

# The first line of what was thrown tells peers enough.
function in_one_line(exception)
    text = try
        exception isa GangwayError ? exception.message : sprint(showerror, exception)
    catch
        string(typeof(exception))
    end
    return replace(first(split(text, '\n')), '\0' => ' ')
end

# Runs a callback: its exception waits for the end of the library's call, and its text goes into the library's
# error, which the peers get, too. `ended` runs after it, whatever happened, and must not throw. The call that
# runs the callback holds Ctrl-C back (see `@waits`); it comes through while f runs and nowhere else.
function guarded(f, ended = () -> nothing)
    task = current_task()
    sticky = task.sticky
    task.sticky = true # a task that yields in here must come back to this thread: the library's frames are on it
    earlier = THROWN[Threads.threadid()]
    try
        Base.sigatomic_end()
        f()
        Base.sigatomic_begin() # an exception leaves it as it was before the try
        THROWN[Threads.threadid()] = earlier # calls in here that succeeded have forgotten it
        return LibGangway.GW_OK
    catch exception
        LibGangway.gw_error_set(in_one_line(exception))
        return remember(exception)
    finally
        ended()
        task.sticky = sticky
    end
end

# The library calls this between the sleeps of a wait. A safepoint lets other threads' collections go on;
# Ctrl-C, which the call holds back, comes through here. Nothing here may yield, for another task of this
# thread could wait for a lock that this call holds.
function ask_interrupt(::Ptr{Cvoid})::Int32
    try
        Base.sigatomic_end()
        ccall(:jl_gc_safepoint, Cvoid, ())
        Base.sigatomic_begin()
    catch exception
        exception isa InterruptException || return Int32(0) # a call that does not hold it back: nothing to let through
        remember(exception)
        return Int32(1)
    end
    return Int32(0)
end

const ASK_INTERRUPT = Ref(C_NULL)

# The hook belongs to an operating-system thread; a Julia thread sets it before its first call that may wait.
@inline function hook()
    id = Threads.threadid()
    (id <= length(HOOKED) && @inbounds HOOKED[id]) || set_hook(id)
    return nothing
end

@noinline function set_hook(id)
    id <= length(HOOKED) || resize_threads()
    check(LibGangway.gw_interrupt_set(ASK_INTERRUPT[], C_NULL, C_NULL))
    HOOKED[id] = true
    return nothing
end

@inline check(status::Integer) = status == LibGangway.GW_OK ? forget_thrown() : fail(status)

# What a callback threw and the library got over must not come out of a later call.
@inline function forget_thrown()
    id = Threads.threadid()
    id <= length(THROWN) && @inbounds THROWN[id] !== nothing && (THROWN[id] = nothing)
    return nothing
end

# For calls that may wait or run callbacks; `made` is taken from what they made. Ctrl-C is held back until the end, as an
# exception that came in between would skip the library's frames, or lose what it made: it is let through where that is
# safe, in `guarded` and `ask_interrupt`. What `check` throws ends this where it is caught. (A function and not a macro
# would take the status too late.)
macro waits(call, made = nothing)
    return quote
        hook()
        Base.sigatomic_begin()
        check($(esc(call)))
        local result = $(esc(made))
        Base.sigatomic_end()
        result
    end
end

# The error is taken before anything is allocated: a finalizer that runs then might call the library.
@noinline function fail(status)
    taken = LibGangway.gw_error_take()
    id = Threads.threadid()
    thrown = THROWN[id]
    THROWN[id] = nothing
    exception = error_of(status, taken)
    LibGangway.gw_error_release(taken)
    thrown === nothing || throw(thrown)
    throw(exception)
end

function error_of(status, taken)
    info = Ref{LibGangway.gw_error_info}()
    LibGangway.gw_error_info_init(info, sizeof(info[]))
    taken == C_NULL || LibGangway.gw_error_describe(taken, info)
    i = info[]
    known = taken != C_NULL
    text(p) = known && p != C_NULL ? unsafe_string(p) : ""
    return GangwayError{status_symbol(status)}(status, text(i.message), text(i.gang), known ? i.rank : -1,
                                               known ? i.peer : -1, text(i.op), known ? i.system_error : 0,
                                               text(i.path))
end
