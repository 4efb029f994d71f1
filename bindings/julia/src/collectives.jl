# Collectives. Each takes the gang, then inputs, then outputs; in place where there is one array. The `_async!` forms return
# a Work, which keeps the arrays alive until it is done. Stacked arrays are stacked over their last dim (C's first).

const NO_STREAM = C_NULL

@inline function reduction(op::Symbol)
    op === :sum && return LibGangway.GW_SUM
    op === :mean && return LibGangway.GW_MEAN
    op === :product && return LibGangway.GW_PRODUCT
    op === :min && return LibGangway.GW_MIN
    op === :max && return LibGangway.GW_MAX
    refuse("op is :", op, ", not one of :sum, :mean, :product, :min, :max")
end
reduction(::typeof(+)) = LibGangway.GW_SUM
reduction(::typeof(*)) = LibGangway.GW_PRODUCT
reduction(::typeof(min)) = LibGangway.GW_MIN
reduction(::typeof(max)) = LibGangway.GW_MAX
reduction(op) = refuse("op is ", op, ", not one of :sum, :mean, :product, :min, :max, +, *, min, max")

# The two forms of a collective: `arguments` without gang and stream, checked by `checks`; `result` is returned.
macro collective(name, async_name, raw, signature, checks, arguments, result, roots)
    raw_async = Symbol(raw, "_async")
    parameters = signature.args[2:end]
    plain = Expr(:call, name, parameters...)
    async = Expr(:call, async_name, parameters...)
    given = arguments.args
    body = quote
        call = $(string(name))
        $checks
        @waits LibGangway.$raw(gang, $(given...), NO_STREAM)
        return $result
    end
    async_body = quote
        call = $(string(async_name))
        $checks
        return start(out -> LibGangway.$raw_async(gang, $(given...), NO_STREAM, out), $roots)
    end
    return esc(Expr(:block, Expr(:function, plain, body), Expr(:function, async, async_body)))
end

@collective(barrier, barrier_async, gw_gang_barrier, f(gang::Gang), nothing, (), nothing, nothing)

@collective(allreduce!, allreduce_async!, gw_gang_all_reduce, f(gang::Gang, input, output = input; op = :sum),
    begin
        word = dense(call, "input", input)
        output === input ? writable(call, "output", output) :
            output_of(call, word, "output", output, length(input))
    end,
    (input, output, length(input), word, reduction(op)), output, (input, output))

@collective(allgather!, allgather_async!, gw_gang_all_gather, f(gang::Gang, input, output),
    begin
        word = dense(call, "input", input)
        output_of(call, word, "output", output, length(input) * length(gang))
    end,
    (input, output, length(input), word), output, (input, output))

@collective(reducescatter!, reducescatter_async!, gw_gang_reduce_scatter,
    f(gang::Gang, input, output; op = :sum),
    begin
        word = dense(call, "input", input, length(output) * length(gang))
        output_of(call, word, "output", output, 0)
    end,
    (input, output, length(output), word, reduction(op)), output, (input, output))

# The root's array is only read.
@collective(bcast!, bcast_async!, gw_gang_broadcast, f(gang::Gang, x; root = 0),
    begin
        word = dense(call, "x", x)
        rank(gang) == root || writable(call, "x", x)
    end,
    (x, x, length(x), word, root), x, x)

@collective(reduce!, reduce_async!, gw_gang_reduce, f(gang::Gang, input, output = input; root = 0, op = :sum),
    begin
        word = dense(call, "input", input)
        rank(gang) == root && output_of(call, word, "output", output, length(input))
    end,
    (input, memory(output), length(input), word, reduction(op), root), output, (input, output))

@collective(gather!, gather_async!, gw_gang_gather, f(gang::Gang, input, output = nothing; root = 0),
    begin
        word = dense(call, "input", input)
        rank(gang) == root && output_of(call, word, "output", output, length(input) * length(gang))
    end,
    (input, memory(output), length(input), word, root), output, (input, output))

@collective(scatter!, scatter_async!, gw_gang_scatter, f(gang::Gang, input, output; root = 0),
    begin
        word = dense_output(call, "output", output)
        if rank(gang) == root
            same_type(call, word, "input", input)
            dense(call, "input", input, length(output) * length(gang))
        end
    end,
    (memory(input), output, length(output), word, root), output, (input, output))

@collective(alltoall!, alltoall_async!, gw_gang_all_to_all, f(gang::Gang, input, output),
    begin
        word = dense(call, "input", input)
        output_of(call, word, "output", output, length(input))
        length(input) % length(gang) == 0 || refuse(call, ": input has ", length(input), " elements, not a multiple ",
                                                    "of the ", length(gang), " ranks")
    end,
    (input, output, length(input) ÷ length(gang), word), output, (input, output))

@collective(send, send_async, gw_gang_send, f(gang::Gang, x, peer), (word = dense(call, "x", x)),
    (x, length(x), word, peer), nothing, x)

@collective(recv!, recv_async!, gw_gang_recv, f(gang::Gang, x, peer), (word = dense_output(call, "x", x)),
    (x, length(x), word, peer), x, x)

"""
    probe(gang, peer)

The length of the next message from `peer` that no receive has asked for; nothing: none has come yet. Never waits.
"""
function probe(gang::Gang, peer)
    ready, count, word = Ref(Int32(0)), Ref(Csize_t(0)), Ref(Int32(0))
    check(LibGangway.gw_gang_probe(gang, peer, ready, count, word))
    return ready[] == 1 ? Int(count[]) : nothing
end

# Where only the root's array is used, the others may give nothing.
memory(x) = x
memory(::Nothing) = C_NULL

@doc """
    allreduce!(gang, x; op = :sum)
    allreduce!(gang, input, output; op = :sum)

The sum (`:sum`, `+`), `:mean`, `:product`, `:min` or `:max` over all ranks, in place or into `output`.
""" allreduce!
@doc "`allgather!(gang, input, output)`: every rank's input, one after the other (stacked over the last dim)." allgather!
@doc "`reducescatter!(gang, input, output; op)`: this rank's part (of the last dim) of the sum of all inputs." reducescatter!
@doc "`bcast!(gang, x; root = 0)`: the root's array, which may be read-only, on every rank." bcast!
@doc "`reduce!(gang, input, output = input; root = 0, op)`: the sum of all inputs on the root." reduce!
@doc "`gather!(gang, input, output; root = 0)`: every rank's input on the root; others may give no output." gather!
@doc "`scatter!(gang, input, output; root = 0)`: part r of the root's input on rank r; others may give `nothing`." scatter!
@doc "`alltoall!(gang, input, output)`: part p of the input (of the last dim) goes to rank p." alltoall!
@doc "`send(gang, x, peer)`: to a `recv!` of the same length and type on `peer`." send
@doc "`recv!(gang, x, peer)`: fills `x` by a `send` of `peer`." recv!
@doc "`barrier(gang)`: returns when every rank has come." barrier

for name in (:allreduce!, :allgather!, :reducescatter!, :bcast!, :reduce!, :gather!, :scatter!, :alltoall!, :send, :recv!, :barrier)
    text = string(name)
    later = Symbol(endswith(text, '!') ? string(chop(text), "_async!") : string(text, "_async"))
    @eval @doc $("Starts `$text` with the same arguments; returns its `Work`, which keeps the arrays until it is done.") $later
end

"A new array: the reduction of `x` over all ranks."
allreduce(gang::Gang, x; op = :sum) = allreduce!(gang, x, similar(x, eltype(x), size(x)); op = op)
"A new array with one more dim, the ranks."
allgather(gang::Gang, x) = allgather!(gang, x, similar(x, eltype(x), (size(x)..., length(gang))))
"This rank's part, of the last dim, which is the rank's, of the sum of all x, as a new array."
function reducescatter(gang::Gang, x; op = :sum)
    size(x, ndims(x)) == length(gang) || refuse("reducescatter: the last dim of x is ", size(x, ndims(x)), ", not ",
                                                length(gang), ", the number of ranks")
    return reducescatter!(gang, x, similar(x, eltype(x), Base.front(size(x))); op = op)
end
"The root's array as a new one; elsewhere x gives size and type alone."
function bcast(gang::Gang, x; root = 0)
    made = copyto!(similar(x, eltype(x), size(x)), x)
    return bcast!(gang, made; root = root)
end
"Part p, of the last dim, of x goes to rank p, as a new array."
alltoall(gang::Gang, x) = alltoall!(gang, x, similar(x, eltype(x), size(x)))

# The element word and where the outputs are.
function gather_list(call, gang, input, outputs)
    word = dense(call, "input", input)
    length(outputs) == length(gang) ||
        refuse(call, ": outputs has ", length(outputs), " arrays, the gang ", length(gang), " ranks")
    for (i, output) in enumerate(outputs)
        output_of(call, word, "outputs[$i]", output, length(input))
    end
    return word, Ptr{Cvoid}[pointer(output) for output in outputs]
end

"Into one array for each rank."
function allgather!(gang::Gang, input, outputs::AbstractVector{<:AbstractArray})
    word, places = gather_list("allgather!", gang, input, outputs)
    GC.@preserve outputs begin
        @waits LibGangway.gw_gang_all_gather_list(gang, input, places, length(input), word, NO_STREAM)
    end
    return outputs
end

"Starts `allgather!` into one array for each rank."
function allgather_async!(gang::Gang, input, outputs::AbstractVector{<:AbstractArray})
    word, places = gather_list("allgather_async!", gang, input, outputs)
    return start((input, outputs)) do out # the places are read before the call returns
        LibGangway.gw_gang_all_gather_list_async(gang, input, places, length(input), word, NO_STREAM, out)
    end
end

"The root's flag on every rank."
function bcast_flag(gang::Gang, flag::Bool; root = 0)
    out = Ref{Int32}(0)
    @waits LibGangway.gw_gang_broadcast_flag(gang, flag, root, out)
    return out[] != 0
end

"The sum of all ranks' numbers."
function allsum(gang::Gang, value::Real)
    out = Ref{Cdouble}(0)
    @waits LibGangway.gw_gang_all_sum(gang, value, out)
    return out[]
end

"Starts `bcast_flag`: `(work, flag)`; `flag[]`, 0 or 1, is good when the work is done."
function bcast_flag_async(gang::Gang, flag::Bool; root = 0)
    made = Ref{Int32}(0)
    return start(out -> LibGangway.gw_gang_broadcast_flag_async(gang, flag, root, made, out), made), made
end

"Starts `allsum`: `(work, sum)`; `sum[]` is good when the work is done."
function allsum_async(gang::Gang, value::Real)
    made = Ref{Cdouble}(0)
    return start(out -> LibGangway.gw_gang_all_sum_async(gang, value, made, out), made), made
end

# --- bytes and objects ------------------------------------------------------------------------------------------------

function copied(bytes::Bytes)
    GC.@preserve bytes begin
        size = Int(LibGangway.gw_bytes_size(bytes))
        size == 0 && return UInt8[]
        return copy(unsafe_wrap(Array, Ptr{UInt8}(LibGangway.gw_bytes_data(bytes)), size))
    end
end

"The root's bytes on every rank (elsewhere `data` is not read)."
function bcast_bytes(gang::Gang, data::Vector{UInt8} = UInt8[]; root = 0)
    bytes = take(Bytes, out -> LibGangway.gw_gang_broadcast_bytes(gang, data, length(data), root, out))
    made = copied(bytes)
    release!(bytes)
    return made
end

"Every rank's bytes, as a vector of vectors."
function allgather_bytes(gang::Gang, data::Vector{UInt8})
    sizes = Vector{Csize_t}(undef, max(length(gang), 1))
    bytes = take(Bytes, out -> LibGangway.gw_gang_all_gather_bytes(gang, data, length(data), sizes, out))
    whole = copied(bytes)
    release!(bytes)
    ends = cumsum(Int.(sizes))
    return [whole[last-Int(n)+1:last] for (n, last) in zip(sizes, ends)]
end

packed(object) = (io = IOBuffer(); serialize(io, object); take!(io))
unpacked(bytes) = deserialize(IOBuffer(bytes))

function check_trust(call, allowed)
    allowed || throw(ArgumentError("$call: Serialization runs what it reads from other ranks: pass allow_serialization = true " *
                                   "where the ranks trust one another, or send bytes"))
end

"""
The root's object on every rank. Serialization runs what it reads, so every rank passes `allow_serialization = true`, and only among
ranks that trust one another; `bcast_bytes` needs no trust.
"""
function bcast_object(gang::Gang, object = nothing; root = 0, allow_serialization = false)
    check_trust("bcast_object", allow_serialization)
    return unpacked(bcast_bytes(gang, rank(gang) == root ? packed(object) : UInt8[]; root = root))
end
"Every rank's object, by Serialization (as `bcast_object`)."
function allgather_objects(gang::Gang, object; allow_serialization = false)
    check_trust("allgather_objects", allow_serialization)
    return map(unpacked, allgather_bytes(gang, packed(object)))
end
