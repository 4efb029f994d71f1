# Work in flight, records and batches.

# Starts asynchronous work that keeps `roots` until it is done, even when the Work is dropped before. They are pinned before
# the work can begin, and given to it before anything is allocated or thrown.
function start(call, roots)
    roots === nothing && return take(Work, call)
    held, lent = address(pin(roots)), lent_tensors(roots)
    return take(Work, out -> start_holding(call, out, held, lent))
end

function start_holding(call, out, held, lent)
    status = call(out)
    status == LibGangway.GW_OK || (free_pin(held); return status)
    status = LibGangway.gw_work_attach(out[], held, FREE_PIN[]) # frees it also when it fails
    for tensor in lent
        status == LibGangway.GW_OK || break
        status = LibGangway.gw_work_attach(out[], LibGangway.gw_tensor_retain(tensor), RELEASE_TENSOR[])
    end
    status == LibGangway.GW_OK || (LibGangway.gw_work_release(out[]); out[] = C_NULL)
    return status
end

# Tensors whose handle a loan's end releases: the array alone would not keep their memory.
lent_tensors(x) = ()
lent_tensors(x::Borrowed) = x.owner isa Tensor ? (x.owner,) : ()
lent_tensors(x::AbstractArray) = (inner = parent(x); inner === x ? () : lent_tensors(inner))
lent_tensors(x::Tuple) = isempty(x) ? () : (lent_tensors(x[1])..., lent_tensors(Base.tail(x))...)
lent_tensors(x::Union{Vector{Any},Vector{<:AbstractArray}}) = Tensor[tensor for one in x for tensor in lent_tensors(one)]

const RELEASE_TENSOR = Ref(C_NULL)

"""
    wait(work; timeout_ms = -1)

Until the outputs are ready and the inputs reusable. Out of time is `Gangway.NotReady`, and harmless.
"""
function Base.wait(work::Work; timeout_ms = -1)
    @waits LibGangway.gw_work_wait(work, timeout_ms)
    return nothing
end

"The same for many; the first failure is thrown."
function wait_all(works; timeout_ms = -1)
    list = collect(Work, works)
    GC.@preserve list begin
        raw = Ptr{LibGangway.gw_work}[work.ptr for work in list]
        @waits LibGangway.gw_work_wait_many(raw, length(raw), timeout_ms)
    end
    return nothing
end

"Whether the work is done; a failure of it is thrown."
function Base.isready(work::Work)
    done = Ref{Int32}(0)
    @waits LibGangway.gw_work_poll(work, done)
    return done[] != 0
end

"Throws the failure of the work, if there is one."
work_error(work::Work) = check(LibGangway.gw_work_error(work))
"Later work on `stream` waits for the output; on a CPU the host waits."
order(work::Work, stream = NO_STREAM) = @waits LibGangway.gw_work_order(work, stream)

const OPS = (barrier = LibGangway.GW_BARRIER, all_reduce = LibGangway.GW_ALL_REDUCE,
             all_gather = LibGangway.GW_ALL_GATHER, reduce_scatter = LibGangway.GW_REDUCE_SCATTER,
             broadcast = LibGangway.GW_BROADCAST, reduce = LibGangway.GW_REDUCE, gather = LibGangway.GW_GATHER,
             scatter = LibGangway.GW_SCATTER, all_to_all = LibGangway.GW_ALL_TO_ALL, send = LibGangway.GW_SEND,
             recv = LibGangway.GW_RECV)
const REDUCING = (:all_reduce, :reduce_scatter, :reduce)

"""
    Collective(op; input, output, count, counts, peer = -1, reduce, accumulate = false)

One collective as a record, for `run` and `run_batch`. `op` is `:all_reduce`, `:all_gather`, `:reduce_scatter`,
`:broadcast`, `:reduce`, `:gather`, `:scatter`, `:all_to_all`, `:send`, `:recv` or `:barrier`; `count` is what the C header
says for it; `counts` (one per rank; for all_to_all the sent ones, then the got) replaces it. `reduce` is `:sum` for what reduces.
"""
struct Collective
    record::Options{LibGangway.gw_collective}
    read_only::Bool # what only a broadcast's root may give as its output
end
lent_tensors(x::Collective) = lent_tensors(x.record.roots)
lent_tensors(x::Vector{Collective}) = Tensor[tensor for one in x for tensor in lent_tensors(one)]

function Collective(op::Symbol; input = nothing, output = nothing, count = nothing, counts = nothing, peer = -1,
                    reduce = op in REDUCING ? :sum : nothing, accumulate = false)
    haskey(OPS, op) || refuse("Collective: op is :", op, ", not one of :", join(keys(OPS), ", :"))
    record = options(LibGangway.gw_collective, "Collective", (peer = peer, accumulate = accumulate))
    set_field!(record, :op, OPS[op])
    reduce === nothing || set_field!(record, :reduce, reduction(reduce))
    for (name, x) in ((:input, input), (:output, output))
        x === nothing && continue
        word = dense("Collective", string(name), x)
        set_field!(record, :dtype, word)
        set_field!(record, name, Ptr{Cvoid}(pointer(x)))
        push!(record.roots, x)
    end
    read_only = op === :broadcast && same_memory(input, output) && is_read_only(output)
    output === nothing || read_only || writable("Collective", "output", output)
    input === nothing || output === nothing || same_type("Collective", dtype(eltype(input)), "output", output)
    if counts !== nothing
        list = collect(Csize_t, counts)
        push!(record.roots, list)
        set_field!(record, :counts, pointer(list))
    elseif count !== nothing
        set_field!(record, :count, count)
    else
        refuse_without_count(op)
        by_output = input === nothing || op in (:reduce_scatter, :scatter)
        x = by_output ? output : input
        x === nothing || set_field!(record, :count, length(x))
    end
    return Collective(record, read_only)
end
same_memory(input, output) = input isa AbstractArray && output isa AbstractArray && pointer(input) == pointer(output)
refuse_without_count(op) = op === :all_to_all && refuse("Collective: :all_to_all needs count or counts")

check_root(call, gang, one) = one.read_only && one.record[].peer != rank(gang) &&
    refuse(call, ": output is read-only memory, which only the root of a broadcast may give; pass a copy of it")

"Starts one record; returns its Work. Collective."
function run(gang::Gang, one::Collective)
    check_root("run", gang, one)
    return start(out -> LibGangway.gw_gang_run(gang, one.record, NO_STREAM, out), one)
end

"Starts all records as one launch, in which sends and receives cannot deadlock; returns the Work of all."
function run_batch(gang::Gang, all)
    list = collect(Collective, all)
    foreach(one -> check_root("run_batch", gang, one), list)
    raw = LibGangway.gw_collective[one.record[] for one in list]
    return start(out -> LibGangway.gw_gang_run_batch(gang, raw, length(raw), NO_STREAM, out), list)
end
