# Partitions: workers, ranks of a gang, in a grid, and what moves arrays between them. Dims are reversed as those of arrays
# are, so dim d of a grid cuts dim d of an array, and the first dim is the fastest.

@handle Partition gw_partition "Workers, ranks of a gang, in a grid: `Partition(gang)`, `cartesian(partition, dims...)`."
@handle MovementHandle gw_movement "The library's side of a movement."

"""
    Partition(gang)

All ranks, in one dim. Local, as `inclusive`, `union`, `cartesian` and `subtopology` are: ranks that make the same calls hold
the same partitions. `length(p)`, `size(p)`, `rank(p)` and `index(p)` tell about it; a rank that is no worker has neither
rank nor index.
"""
Partition(gang::Gang) = take(Partition, out -> LibGangway.gw_partition_create(gang, out))

"These workers (from 0), in this order, in one dim."
inclusive(p::Partition, workers) = take(Partition, out ->
    LibGangway.gw_partition_inclusive(p, collect(Int32, workers), length(workers), out))
"The workers of `p`, then those of `other` that are not among them, in one dim."
Base.union(p::Partition, other::Partition) = take(Partition, out -> LibGangway.gw_partition_union(p, other, out))
"The same workers in a grid, the first dim fastest: worker r has place `CartesianIndices(dims)[r+1]`."
function cartesian(p::Partition, dims::Integer...)
    shape = Int32[reverse(dims)...]
    return take(Partition, out -> LibGangway.gw_partition_cartesian(p, shape, length(shape), out))
end
"The workers that share this rank's index on all other dims, in a grid of the `kept` ones."
function subtopology(p::Partition, kept::Integer...)
    numbers = c_dims("subtopology", ndims(p), kept)
    return take(Partition, out -> LibGangway.gw_partition_subtopology(p, numbers, length(numbers), out))
end

partition_facts(p::Partition) =
    facts(LibGangway.gw_partition_info, out -> check(LibGangway.gw_partition_describe(p, out)))
"How many workers the partition has."
Base.length(p::Partition) = Int(partition_facts(p).size)
Base.size(p::Partition) = partition_facts(p).shape
Base.ndims(p::Partition) = Int(partition_facts(p).ndim)
"Whether this rank is a worker."
is_active(p::Partition) = partition_facts(p).active != 0
"This worker's number, from 0; nothing: inactive."
rank(p::Partition) = (known = partition_facts(p); known.active == 0 ? nothing : Int(known.rank))
"This worker's place, from 1 along each dim; nothing: inactive."
index(p::Partition) = (known = partition_facts(p); known.active == 0 ? nothing : known.index .+ 1)
"The workers (from 0) before and after this one along `dim`; nothing at the edge."
function neighbors(p::Partition, dim::Integer)
    before, after = Ref{Int32}(0), Ref{Int32}(0)
    check(LibGangway.gw_partition_neighbors(p, c_dims("neighbors", ndims(p), (dim,))[1], before, after))
    worker(number) = number < 0 ? nothing : Int(number)
    return (before = worker(before[]), after = worker(after[]))
end
Base.show(io::IO, p::Partition) =
    print(io, "Partition", size(p), is_active(p) ? " at $(index(p))" : ", inactive")

# The library counts dims from the other end.
function c_dims(call, count, dims)
    foreach(d -> 1 <= d <= count || refuse(call, ": dim ", d, " is not 1 to ", count, ", the dims of the partition"), dims)
    return Int32[count - d for d in dims]
end

"""
Moves arrays over a partition, or from one to another: `y = movement(x)`; `backward(movement, dy)` is the adjoint. The inner
product is the sum over all ranks. A rank that is no worker passes nothing, or an array without elements. Made by
`AllGather`, `ReduceScatter`, `AllSumReduce`, `BroadcastTo`, `SumReduce` and `Repartition`; that is collective over the gang.
"""
struct Movement
    handle::MovementHandle
end

function Movement(call, kind, source::Partition, target; dims = nothing, keep = nothing, keywords...)
    made = options(LibGangway.gw_movement_options, call, keywords)
    for (given, list, count) in ((dims, :axes, :axis_count), (keep, :axes_keep, :keep_count))
        given === nothing && continue
        numbers = c_dims(call, ndims(source), given)
        isempty(numbers) && push!(sizehint!(numbers, 1), 0) # an empty list has an address, too
        push!(made.roots, numbers)
        set_field!(made, list, pointer(numbers))
        set_field!(made, count, length(given))
    end
    other = target === nothing ? C_NULL : target
    return Movement(take(MovementHandle, out -> LibGangway.gw_movement_create(source, other, kind, made, out)))
end

"`AllGather(p; dims)`: joins the pieces along one dim on every worker. `keep` names all other dims instead."
AllGather(p::Partition; keywords...) =
    Movement("AllGather", LibGangway.GW_MOVEMENT_ALL_GATHER, p, nothing; keywords...)
"`ReduceScatter(p; dims)`: sums over the workers along one dim; each keeps its balanced piece of it."
ReduceScatter(p::Partition; keywords...) =
    Movement("ReduceScatter", LibGangway.GW_MOVEMENT_REDUCE_SCATTER, p, nothing; keywords...)
"`AllSumReduce(p; dims)`: sums over the workers along some dims, on each of them."
AllSumReduce(p::Partition; keywords...) =
    Movement("AllSumReduce", LibGangway.GW_MOVEMENT_ALL_SUM_REDUCE, p, nothing; keywords...)
"`BroadcastTo(source, target)` (`Base.Broadcast` is Julia's own): shapes align at the first dim, as in a Julia broadcast; the source's dim is the target's or 1."
BroadcastTo(source::Partition, target::Partition; keywords...) =
    Movement("BroadcastTo", LibGangway.GW_MOVEMENT_BROADCAST, source, target; keywords...)
"`SumReduce(source, target)`: sums the arrays of the source's workers on those of the target, the reverse of a broadcast."
SumReduce(source::Partition, target::Partition; keywords...) =
    Movement("SumReduce", LibGangway.GW_MOVEMENT_SUM_REDUCE, source, target; keywords...)
"`Repartition(source, target)`: an array that is cut over the source becomes cut over the target, balanced."
Repartition(source::Partition, target::Partition; keywords...) =
    Movement("Repartition", LibGangway.GW_MOVEMENT_REPARTITION, source, target; keywords...)

function moved(call, movement, array, run)
    given = views(call, "the array", (array === nothing ? Float32[] : array,))
    return GC.@preserve given Gangway.array(take(Tensor, out -> run(movement.handle, given, NO_STREAM, out)))
end
(movement::Movement)(x) = moved("forward", movement, x, LibGangway.gw_movement_forward)
"The gradient of the last forward's input, from that of its output. Collective."
backward(movement::Movement, dy) = moved("backward", movement, dy, LibGangway.gw_movement_backward)
release!(movement::Movement) = release!(movement.handle)
"""
    Gangway.duplicate(movement)

Another handle of the same movement, which keeps a forward of its own: several forwards before their backwards take a duplicate
each. All ranks run the calls of a movement and of its duplicates in one order.
"""
duplicate(movement::Movement) =
    Movement(take(MovementHandle, out -> LibGangway.gw_movement_duplicate(movement.handle, out)))
