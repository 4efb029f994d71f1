# Gangs and meshes.

gang_options(call, keywords) = options(LibGangway.gw_gang_options, call, keywords)
function field_value(made, call, name, ::Type{Ptr{LibGangway.gw_store}}, store)
    store isa Store || refuse(call, ": ", name, " is a ", typeof(store), ", not a Store")
    push!(made.roots, store)
    return store.ptr
end

"""
    Gang(; device, engine, name, timeout_ms, rank, size, store, id, ...)

A root gang. Without `rank` and `size` the environment decides (gangrun, torchrun, srun, mpirun); nothing set: one rank.
`all_gather(bytes)`, with `rank` and `size`: the program's own way to bring ranks together (MPI, a pipe); it gets a
`Vector{UInt8}`, of the same length on every rank, and returns all of them one after the other. Called once.
"""
function Gang(; all_gather = nothing, keywords...)
    made = gang_options("Gang", keywords)
    if all_gather !== nothing
        held = pin(OwnGather(all_gather, made[].size)) # the library frees it, also when the call fails
        for (name, value) in ((:all_gather, OWN_GATHER[]), (:user, address(held)), (:free_user, FREE_PIN[]))
            set_field!(made, name, value)
        end
    end
    return take(Gang, out -> LibGangway.gw_gang_create(made, out))
end

struct OwnGather
    all_gather::Any
    ranks::Int32
end

gather_by_own(user::Ptr{Cvoid}, input::Ptr{Cvoid}, size::Csize_t, output::Ptr{Cvoid}) = guarded() do
    own = pinned(user)::OwnGather
    mine = copy(unsafe_wrap(Array, Ptr{UInt8}(input), Int(size)))
    all = own.all_gather(mine)::Vector{UInt8}
    length(all) == size * own.ranks ||
        refuse("Gang: all_gather gave ", length(all), " bytes, not ", Int(size), " of each of ", own.ranks, " ranks")
    GC.@preserve all unsafe_copyto!(Ptr{UInt8}(output), pointer(all), length(all))
end

const OWN_GATHER = Ref(C_NULL)
make_gang_callbacks() =
    OWN_GATHER[] = @cfunction(gather_by_own, Int32, (Ptr{Cvoid}, Ptr{Cvoid}, Csize_t, Ptr{Cvoid}))

"`count` root gangs in one process, one for each thread that is a rank."
function thread_gangs(count; keywords...)
    made = gang_options("thread_gangs", keywords)
    list = fill(Ptr{LibGangway.gw_gang}(C_NULL), max(count, 1))
    return @waits LibGangway.gw_gang_create_threads(count, made, list) Gang.(list)
end

"""
A gang without peers, that acts as if every rank held the caller's data. `Gangway.mesh` over it is the mesh of one rank of any
size, and `Gangway.flight_record` of each of its gangs says what was called.
"""
function fake_gang(rank, size; keywords...)
    made = gang_options("fake_gang", keywords)
    return take(Gang, out -> LibGangway.gw_gang_create_fake(rank, size, made, out))
end

"A secret blob by which ranks find each other: `Gang(; id, rank, size)`."
function gang_id()
    blob, size = Vector{UInt8}(undef, 64), Ref{Csize_t}(0)
    check(LibGangway.gw_gang_id_create(blob, length(blob), size))
    return resize!(blob, size[])
end

member(gang) = isopen(gang) ? gang : nothing

"The ranks of the list, in its order, as a new gang; nothing for the others. Collective over `gang`."
subgang(gang::Gang, ranks) = member(take(Gang, out ->
    LibGangway.gw_gang_create_gang(gang, collect(Int32, ranks), length(ranks), out)))
"Ranks of one color, by key; nothing where `color < 0`. Collective."
split_gang(gang::Gang, color, key = rank(gang)) =
    member(take(Gang, out -> LibGangway.gw_gang_split(gang, color, key, out)))
"The same members, private traffic. Collective."
duplicate(gang::Gang) = take(Gang, out -> LibGangway.gw_gang_duplicate(gang, out))
"The survivors of a broken gang as a new one. Collective over them."
shrink(gang::Gang, survivors) = take(Gang, out ->
    LibGangway.gw_gang_shrink(gang, collect(Int32, survivors), length(survivors), out))

"This rank's number in the gang, from 0."
rank(gang::Gang) = Int(LibGangway.gw_gang_rank(gang))
"How many ranks the gang has."
Base.length(gang::Gang) = Int(LibGangway.gw_gang_size(gang))
"The gang's name in errors."
name(gang::Gang) = unsafe_string(LibGangway.gw_gang_name(gang))
"What moves the data."
engine(gang::Gang) = unsafe_string(LibGangway.gw_gang_engine(gang))
"Where its tensors are."
device(gang::Gang) = unsafe_string(LibGangway.gw_gang_device(gang))

"Calls, bytes read from peers, bytes staged."
traffic(gang::Gang) = facts(LibGangway.gw_gang_traffic, out -> check(LibGangway.gw_gang_get_traffic(gang, out)))
"The ring of the last collectives as text."
flight_record(gang::Gang) =
    whole_text((text, capacity, len) -> LibGangway.gw_gang_flight_record(gang, text, capacity, len))
"What NCCL or MPI calls this gang; `NotSupported` where the engine has none."
function native_handle(gang::Gang)
    out = Ref{Ptr{Cvoid}}(C_NULL)
    check(LibGangway.gw_gang_native_handle(gang, out))
    return out[]
end

"Collective and orderly. `Gangway.init(...) do gangs` does it by itself."
shutdown(gang::Gang; timeout_ms = -1) = (@waits LibGangway.gw_gang_shutdown(gang, timeout_ms); sweep(); nothing)
"""
    Gangway.trace(gang, folder) do ... end

Collective over a root gang. Each rank writes what it does in the block, and when, into folder/rank-R.json. The program gw-trace
puts the files together, for ui.perfetto.dev, and draws pipelines.
"""
function trace(f, gang::Gang, folder)
    @waits LibGangway.gw_gang_begin_trace(gang, c_text("trace", "folder", folder))
    try
        return f()
    finally
        check(LibGangway.gw_gang_end_trace(gang))
    end
end
"Local. Breaks the gang and wakes every waiter here and on peers."
abort(gang::Gang, reason = "abort") =
    check(LibGangway.gw_gang_abort(gang, c_text("abort", "reason", reason)))
"Throws why the gang is broken, if it is."
async_error(gang::Gang) = check(LibGangway.gw_gang_async_error(gang))

# --- memory -----------------------------------------------------------------------------------------------------------

mutable struct GangMemory
    data::Ptr{Cvoid}
    GangMemory(data) = finalizer(release!, new(data))
end
function release!(memory::GangMemory)
    data, memory.data = memory.data, C_NULL
    LibGangway.gw_gang_free(C_NULL, data)
    return nothing
end

function gang_memory(gang, T, dims, allocate)
    dtype(T) == LibGangway.GW_DTYPE_INVALID && refuse("alloc: elements of ", T, " are none of the library's")
    device(gang) == "cpu" || refuse("alloc: the gang's memory is of ", device(gang), ", where Julia cannot read it")
    out = Ref{Ptr{Cvoid}}(C_NULL)
    memory = @waits allocate(gang, sizeof(T) * prod(dims), out) GangMemory(out[])
    return Borrowed(unsafe_wrap(Array, Ptr{T}(out[]), dims), memory, false)
end

"An array that peers reach directly: collectives on it stage nothing. Its first contents are undefined."
alloc(gang::Gang, ::Type{T}, dims::Integer...) where {T} = gang_memory(gang, T, Int.(dims), LibGangway.gw_gang_alloc)
"A tensor in the gang's memory, also of a GPU. Its elements are undefined."
function alloc_tensor(gang::Gang, ::Type{T}, dims::Integer...) where {T}
    shape = collect(Int64, reverse(dims))
    return take(Tensor, out -> LibGangway.gw_gang_alloc_tensor(gang, shape, length(shape), dtype(T), out))
end
"One zeroed array that all ranks share. Collective."
alloc_shared(gang::Gang, ::Type{T}, dims::Integer...) where {T} =
    gang_memory(gang, T, Int.(dims), LibGangway.gw_gang_alloc_shared)

# --- meshes -----------------------------------------------------------------------------------------------------------

"""
The gangs of a mesh: `gangs.root`, `.dp`, `.rdp`, `.sdp`, `.tp`, `.pp`, `.cp`, each axis, and products of axes as
`gangs["dp_shard+cp"]`.
"""
mutable struct Gangs
    ptr::Ptr{LibGangway.gw_gangs}
    known::Dict{String,Gang}
    made_root::Union{Gang,Nothing} # a root that init made, and so ends
    function Gangs(ptr, made_root = nothing)
        made = new(ptr, Dict{String,Gang}(), made_root)
        return finalizer(release!, made)
    end
end
function release!(x::Gangs)
    ptr = getfield(x, :ptr)
    setfield!(x, :ptr, Ptr{LibGangway.gw_gangs}(C_NULL))
    ptr == C_NULL || LibGangway.gw_gangs_release(ptr)
    return nothing
end
Base.unsafe_convert(::Type{Ptr{LibGangway.gw_gangs}}, x::Gangs) = held(Gangs, getfield(x, :ptr))
Base.isopen(x::Gangs) = getfield(x, :ptr) != C_NULL

function take_gangs(call, root = nothing)
    out = Ref(Ptr{LibGangway.gw_gangs}(C_NULL))
    return @waits call(out) Gangs(out[], root)
end

function Base.getindex(gangs::Gangs, axes::AbstractString)
    text = c_text("gangs", "axes", axes)
    return get!(getfield(gangs, :known), text) do
        take(Gang, out -> LibGangway.gw_gangs_get(gangs, text, out))
    end
end

const AXES = (:root, :dp, :rdp, :sdp, :tp, :pp, :cp, :dp_replicate, :dp_shard)
Base.propertynames(::Gangs) = AXES
function Base.getproperty(gangs::Gangs, name::Symbol)
    name in AXES || refuse("gangs: no gang ", name, "; there are ", join(AXES, ", "))
    return gangs[string(name)]
end

"""
    Gangway.init(; tp = 1, pp = 1, cp = 1, dp_replicate = 1, dp_shard = -1, timeout_ms, engine, ...)
    Gangway.init(...) do gangs ... end

The gangs of this job. The environment says who the ranks are; the do-block ends in an orderly shutdown, or, when it
throws, in an abort that tells the peers why.
"""
function init(; keywords...)
    mesh, gang = split_keywords("init", values(keywords), LibGangway.gw_mesh_options, LibGangway.gw_gang_options)
    made = options(LibGangway.gw_mesh_options, "init", mesh)
    root = Gang(; gang...)
    return take_gangs(out -> LibGangway.gw_gangs_create(root, made, out), root)
end

function init(f; keywords...)
    gangs = init(; keywords...)
    result = try
        f(gangs)
    catch exception
        abort_all(gangs, exception)
        rethrow()
    end
    shutdown(gangs)
    return result
end

# The gangs may be broken already.
function abort_all(gangs, exception)
    reason, root = in_one_line(exception), getfield(gangs, :made_root)
    try
        root === nothing || abort(root, reason)
        abort(gangs, reason)
    catch problem
        problem isa GangwayError || rethrow()
    end
    return nothing
end

"A mesh over a root gang of the caller's. Collective."
function mesh(root::Gang; keywords...)
    made = options(LibGangway.gw_mesh_options, "mesh", keywords)
    return take_gangs(out -> LibGangway.gw_gangs_create(root, made, out))
end
"""
    Gangway.mesh_preset(name, node_size = 1)

The degrees of a preset, for `Gangway.init(; Gangway.mesh_preset("hsdp", 8)...)`: "single", "ddp", "fsdp", "hsdp", "tp",
"tp+fsdp", "pp" or "3d". `node_size`: ranks of a node, for hsdp and tp+fsdp. Local.
"""
function mesh_preset(name, node_size = 1)
    made = options(LibGangway.gw_mesh_options, "mesh_preset", ())
    check(LibGangway.gw_mesh_options_preset(made, c_text("mesh_preset", "name", name), node_size))
    o = made.ref[]
    return (pp = o.pp, dp_replicate = o.dp_replicate, dp_shard = o.dp_shard, cp = o.cp, tp = o.tp)
end
function field_value(made, call, name, ::Type{Ptr{LibGangway.gw_gang}}, gang)
    gang isa Gang || refuse(call, ": ", name, " is a ", typeof(gang), ", not a Gang")
    push!(made.roots, gang)
    return Base.unsafe_convert(Ptr{LibGangway.gw_gang}, gang)
end
"""
    Gangway.gangs_of(; root, dp, rdp, sdp, tp, pp, cp)

Gangs that you made, one for each place; their sizes are the degrees. shutdown leaves them alone. Collective over the root.
"""
function gangs_of(; keywords...)
    made = options(LibGangway.gw_gang_places, "gangs_of", keywords)
    return take_gangs(out -> LibGangway.gw_gangs_create_of(made, out))
end
"tp, pp and cp by degree, the rest is dp. Collective."
parallel_gangs(root::Gang; tp = 1, pp = 1, cp = 1) =
    take_gangs(out -> LibGangway.gw_gangs_create_parallel(root, tp, pp, cp, out))
"Splits dp into sdp (within a node of so many ranks) and rdp. Collective."
fsdp_gangs(gangs::Gangs, intra_node_size = 0) =
    take_gangs(out -> LibGangway.gw_gangs_create_fsdp(gangs, intra_node_size, out))
"A fake gang of one in every place."
fake_gangs(device = "cpu") = take_gangs(out -> LibGangway.gw_gangs_create_fake(device, out))

"This rank's index on an axis, and the axis's degree."
function coordinate(gangs::Gangs, axis)
    index, degree = Ref{Int32}(0), Ref{Int32}(0)
    check(LibGangway.gw_gangs_coordinate(gangs, c_text("coordinate", "axis", string(axis)), index, degree))
    return (index = index[], degree = degree[])
end

"Which rows of the global batch this rank reads: part `index` (from 0) of `count`."
function data_shard(gangs::Gangs)
    index, count = Ref{Int32}(0), Ref{Int32}(0)
    check(LibGangway.gw_gangs_data_shard(gangs, index, count))
    return (index = index[], count = count[])
end

function shutdown(gangs::Gangs; timeout_ms = -1)
    @waits LibGangway.gw_gangs_shutdown(gangs, timeout_ms)
    root = getfield(gangs, :made_root)
    root === nothing || shutdown(root; timeout_ms = timeout_ms)
    sweep()
    return nothing
end
abort(gangs::Gangs, reason = "abort") =
    check(LibGangway.gw_gangs_abort(gangs, c_text("abort", "reason", reason)))

"`with_current(f, gangs)`: these are the current gangs of this thread while f runs."
function with_current(f, gangs::Gangs)
    check(LibGangway.gw_gangs_push_current(gangs))
    try
        return f()
    finally
        check(LibGangway.gw_gangs_pop_current(gangs))
    end
end

"The current gangs of this thread, or nothing; with a device: else its default."
function current(device = nothing)
    out = Ref(Ptr{LibGangway.gw_gangs}(C_NULL))
    check(LibGangway.gw_gangs_current(device === nothing ? C_NULL : device, out))
    return out[] == C_NULL ? nothing : Gangs(out[])
end
"The default of a device for this thread; nothing: back to fake gangs of one."
set_default(device, gangs) =
    check(LibGangway.gw_gangs_set_default(device, gangs === nothing ? C_NULL : gangs))
