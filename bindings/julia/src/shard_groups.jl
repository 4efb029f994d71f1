# Shard groups: for programs that compute by themselves and want only the sharding.

@handle GroupHandle gw_shard_group "The library's side of a shard group."

"""
    ShardGroup(gangs, name, parameters...; seed = 0, strategy = :full_shard, ...)

Parameters of the caller's own model, sharded as one parameter group. `parameters` are `Parameter`s, `name => dims` (a tuple
of integers) or `name => values` (an array: the first values, equal on every rank); `gangs` may be nothing (one rank).
`unshard!(group) do w, b ... end` gives the whole values. Collective.
"""
struct ShardGroup
    handle::GroupHandle
    name::String
    names::Vector{String}
    lent::Vector{Any}
    updating::Base.RefValue{Bool}
    rows::Vector{Any} # lent to an update, to write
    ShardGroup(handle::GroupHandle, name, names) = new(handle, name, names, Any[], Ref(false), Any[])
end
Base.unsafe_convert(::Type{Ptr{LibGangway.gw_shard_group}}, group::ShardGroup) =
    held(ShardGroup, group.handle.ptr)
release!(group::ShardGroup) = release!(group.handle)
Base.isopen(group::ShardGroup) = isopen(group.handle)
"The number of its parameters."
Base.length(group::ShardGroup) = length(group.names)

function ShardGroup(gangs, name, parameters...; seed = 0, keywords...)
    made = options(LibGangway.gw_shard_options, "ShardGroup", keywords)
    text, mesh = c_text("ShardGroup", "name", name), maybe(gangs)
    described = map(Parameter, parameters)
    list, roots = parameter_array("ShardGroup", described)
    handle = GC.@preserve roots list take(GroupHandle, out -> LibGangway.gw_shard_group_create(
        mesh, text, list, length(list), made, seed, out))
    return ShardGroup(handle, name, String[parameter.name for parameter in described])
end

"""
    local_array(group, index, part)

Parameter `index` (from 1) as an array without a copy: `:value` and `:gradient` are this rank's rows, `:full_value` and
`:full_gradient` the whole, lent until `reshard!`.
Values are read-only: a write is a `ReadOnlyMemoryError`, and as the output of a call they are refused. `:value` is
writable while `update!` runs, by the arrays that its block gets or asks for.
"""
function local_array(group::ShardGroup, index, part::Symbol = :value)
    part in (:full_value, :full_gradient) && return full_array(group, index, part)
    view = empty_view()
    check(LibGangway.gw_shard_group_view(group, index - 1, part_number(part), view))
    updating = part === :value && group.updating[]
    made = borrow(view[], group.handle, part === :value && !updating)
    updating && push!(group.rows, made)
    return made
end

# Lent by a handle, so that a work which is still under way at `reshard!` can keep the memory.
function full_array(group, index, part)
    owner = tensor(group, index, part)
    view = empty_view()
    check(LibGangway.gw_tensor_view(owner, view))
    made = borrow(view[], owner, part === :full_value)
    push!(group.lent, made)
    return made
end

tensor(group::ShardGroup, index, part::Symbol = :full_value) =
    take(Tensor, out -> LibGangway.gw_shard_group_tensor(group, index - 1, part_number(part), out))

"The whole values, lent until `reshard!` and read-only (`copy` them to write). Collective."
function unshard!(group::ShardGroup)
    @waits LibGangway.gw_shard_group_unshard(group, C_NULL, NO_STREAM)
    return full_values(group)
end
full_values(group) = [local_array(group, i, :full_value) for i in 1:length(group)]

"Copies of the whole values into the caller's arrays, which stay as they are. Collective."
function unshard!(group::ShardGroup, into::Union{Tuple,NamedTuple,AbstractVector})
    given = views("unshard!", "into", into)
    length(given) == length(group) ||
        refuse("unshard!: into has ", length(given), " arrays, the group ", length(group), " parameters")
    foreach(i -> writable("unshard!", "into[$i]", into[i]), eachindex(into))
    GC.@preserve given @waits LibGangway.gw_shard_group_unshard(group, given, NO_STREAM)
    return into
end

"Starts to gather ahead; `unshard!` then finds it under way or done."
unshard_async!(group::ShardGroup) =
    start(out -> LibGangway.gw_shard_group_unshard_async(group, NO_STREAM, out), group.handle)

"Ends the loan of the whole values; a work that still reads them keeps what it reads."
function reshard!(group::ShardGroup)
    for lent in group.lent
        give_back!(lent)
        release!(lent.owner) # at once: what a handle holds the next unshard cannot use again
    end
    empty!(group.lent)
    @waits LibGangway.gw_shard_group_reshard(group, NO_STREAM)
    return nothing
end

"`unshard!(group) do w, b ... end`: the whole values while the block runs."
function unshard!(f, group::ShardGroup)
    values = unshard!(group)
    try
        return f(values...)
    finally
        reshard!(group)
    end
end

"Adds to the full gradients, while unsharded: one array for each parameter, or nothing for none."
function add_gradients!(group::ShardGroup, gradients...)
    length(gradients) == length(group) ||
        refuse("add_gradients!: ", length(gradients), " gradients, the group has ", length(group), " parameters")
    for (i, gradient) in enumerate(gradients)
        gradient === nothing && continue
        given = views("add_gradients!", "gradients[$i]", (gradient,))
        GC.@preserve given @waits LibGangway.gw_shard_group_add_gradient(group, i - 1, given, NO_STREAM)
    end
    return nothing
end

"Adds the sum over all data ranks to the local gradients. Collective."
reduce!(group::ShardGroup) = @waits LibGangway.gw_shard_group_reduce(group, NO_STREAM)

"`update!(group) do values... end`: an own update of this rank's rows in place, then published. Collective."
function update!(f, group::ShardGroup)
    @waits LibGangway.gw_shard_group_begin_update(group, NO_STREAM)
    group.updating[] = true
    try
        return f((local_array(group, i, :value) for i in 1:length(group))...)
    finally
        group.updating[] = false
        foreach(lock_rows!, group.rows)
        empty!(group.rows)
        @waits LibGangway.gw_shard_group_end_update(group, NO_STREAM)
    end
end

"A model of these groups, for optimizer, clip, load and save."
function Model(groups::ShardGroup...)
    GC.@preserve groups begin
        raw_groups = [group.handle.ptr for group in groups]
        return take(Model, out -> LibGangway.gw_module_from_groups(raw_groups, length(raw_groups), out))
    end
end
