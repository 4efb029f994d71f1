# Facts that hold on every rank of a gang: started by gangrun.
using Gangway, Test
using Gangway: rank

include("facts.jl")

const GANGS = start(; timeout_ms = 600_000)
const GANG = GANGS.root
const ME, RANKS = Gangway.rank(GANG), length(GANG)
const OTHERS = 0:RANKS-1

# What rank r brings, different for every element.
brings(T, r, dims) = T.(reshape(1:prod(dims), dims) .+ 100r .% 50)

fact("every collective gives the formula's result, at once and later") do
    for T in (Float32, Int64)
        x, all = brings(T, ME, (2, 3)), [brings(T, r, (2, 3)) for r in OTHERS]
        whole = cat(all...; dims = 3)
        @test allreduce(GANG, x) == sum(all)
        @test allreduce(GANG, x; op = max) == max.(all...)
        @test allgather(GANG, x) == whole
        out = zeros(T, 2, 3, RANKS)
        wait(allgather_async!(GANG, x, out))
        @test out == whole
        parts = [zeros(T, 2, 3) for _ in OTHERS]
        @test allgather!(GANG, x, parts) == all
        foreach(part -> fill!(part, 0), parts)
        wait(allgather_async!(GANG, x, parts))
        @test parts == all
        y = copy(x)
        work = allreduce_async!(GANG, y; op = :min)
        wait(work)
        @test y == min.(all...) && isready(work)
        for root in OTHERS
            @test bcast!(GANG, copy(x); root = root) == all[root+1]
            z = copy(x)
            wait(bcast_async!(GANG, z; root = root))
            @test z == all[root+1]
            found = reduce!(GANG, x, zeros(T, 2, 3); root = root)
            @test ME != root || found == sum(all)
            found = ME == root ? zeros(T, 2, 3, RANKS) : nothing
            gather!(GANG, x, found; root = root)
            @test ME != root || found == whole
            found = zeros(T, 2, 3)
            @test scatter!(GANG, ME == root ? whole : nothing, found; root = root) == x
            wait(reduce_async!(GANG, x, found; root = root))
            @test ME != root || found == sum(all)
            wait(gather_async!(GANG, x, ME == root ? out : nothing; root = root))
            wait(scatter_async!(GANG, ME == root ? out : nothing, found; root = root))
            @test found == x
        end
    end
    barrier(GANG)
    wait(barrier_async(GANG))
end

fact("parts are of the last dim") do
    big = [100.0ME + 10i + j for i in 1:2, j in 1:RANKS]
    part = zeros(2, 1)
    reducescatter!(GANG, big, part)
    @test part == [sum(100r + 10i + ME + 1 for r in OTHERS) for i in 1:2, j in 1:1]
    wait(reducescatter_async!(GANG, big, part; op = :mean))
    @test part ≈ [sum(100r + 10i + ME + 1 for r in OTHERS) / RANKS for i in 1:2, j in 1:1]
    out = similar(big)
    alltoall!(GANG, big, out)
    @test out == [100.0(p - 1) + 10i + ME + 1 for i in 1:2, p in 1:RANKS]
    fill!(out, 0)
    wait(alltoall_async!(GANG, big, out))
    @test out[2, end] == 100.0(RANKS - 1) + 20 + ME + 1
end

fact("sends meet receives, in rings and in batches") do
    next, before = mod(ME + 1, RANKS), mod(ME - 1, RANKS)
    x, y = fill(Float32(ME), 1000), zeros(Float32, 1000)
    if RANKS > 1
        work = send_async(GANG, x, next)
        recv!(GANG, y, before)
        wait(work)
        @test y == fill(before, 1000)
        got = recv_async!(GANG, y, next)
        Gangway.send(GANG, x, before)
        wait(got)
        @test y == fill(next, 1000)
        barrier(GANG)
        @test Gangway.probe(GANG, before) === nothing
        barrier(GANG)
        work = send_async(GANG, x, next)
        while Gangway.probe(GANG, before) === nothing end
        @test Gangway.probe(GANG, before) == 1000
        recv!(GANG, y, before)
        wait(work)
    end
    fill!(y, -1)
    wait(Gangway.run_batch(GANG, [Gangway.Collective(:send; input = x, peer = next),
                                  Gangway.Collective(:recv; output = y, peer = before)]))
    @test y == fill(before, 1000)
end

fact("records take counts for each rank, and accumulate") do
    counts = [r + 1 for r in OTHERS]
    own, parts = fill(ME, ME + 1), vcat((fill(r, r + 1) for r in OTHERS)...)
    record(op, input, output; keywords...) =
        wait(Gangway.run(GANG, Gangway.Collective(op; input = input, output = output, counts = counts, keywords...)))
    all, mine = zeros(Int, length(parts)), zeros(Int, ME + 1)
    record(:all_gather, own, all)
    @test all == parts
    record(:reduce_scatter, parts, mine)
    @test mine == RANKS .* own
    all .= 0
    record(:gather, own, ME == 0 ? all : nothing; peer = 0)
    @test ME != 0 || all == parts
    record(:scatter, ME == 0 ? parts : nothing, mine; peer = 0)
    @test mine == own
    sent = [ME + 1 for _ in OTHERS]
    got = [p + 1 for p in OTHERS]
    x, y = fill(Float64(ME), sum(sent)), zeros(sum(got))
    wait(Gangway.run(GANG, Gangway.Collective(:all_to_all; input = x, output = y, counts = [sent; got])))
    @test y == vcat((fill(Float64(p), p + 1) for p in OTHERS)...)
    sums = fill(10.0, 3)
    wait(Gangway.run(GANG, Gangway.Collective(:all_reduce; input = ones(3), output = sums, accumulate = true)))
    @test sums == fill(10.0 + RANKS, 3)
    z = fill(Float64(ME), 2)
    wait(Gangway.run(GANG, Gangway.Collective(:broadcast; input = z, output = z, peer = RANKS - 1)))
    @test z == fill(RANKS - 1, 2)
end

fact("bytes, flags, numbers and objects reach every rank") do
    @test Gangway.bcast_bytes(GANG, UInt8[ME, 7]; root = RANKS - 1) == [RANKS - 1, 7]
    @test Gangway.allgather_bytes(GANG, fill(UInt8(ME), ME)) == [fill(UInt8(r), r) for r in OTHERS]
    @test Gangway.bcast_flag(GANG, ME == 0) && !Gangway.bcast_flag(GANG, ME != 0)
    @test Gangway.allsum(GANG, ME) == sum(OTHERS)
    (adds, added), (flags, flag) = Gangway.allsum_async(GANG, ME), Gangway.bcast_flag_async(GANG, ME == 0)
    Gangway.wait_all([adds, flags])
    @test (added[], flag[]) == (sum(OTHERS), 1)
    @test Gangway.bcast_object(GANG, ME == 0 ? Dict("a" => 1:3) : nothing; allow_serialization = true) == Dict("a" => 1:3)
    @test_throws ArgumentError Gangway.bcast_object(GANG, 1)
    @test Gangway.allgather_objects(GANG, (ME, "x"); allow_serialization = true) == [(r, "x") for r in OTHERS]
end

fact("gangs of gangs: lists, colors, duplicates, meshes") do
    backwards = Gangway.subgang(GANG, reverse(OTHERS))
    @test Gangway.rank(backwards) == RANKS - 1 - ME
    last_only = Gangway.subgang(GANG, [RANKS - 1])
    @test (last_only === nothing) == (ME != RANKS - 1)
    halves = Gangway.split_gang(GANG, ME % 2)
    @test allreduce(halves, [1]) == [count(r -> r % 2 == ME % 2, OTHERS)]
    @test Gangway.split_gang(GANG, -1) === nothing
    @test length(Gangway.duplicate(GANG)) == RANKS
    @test thrown(() -> Gangway.subgang(GANG, [0, 0])) isa Gangway.InvalidArgument
    mesh = Gangway.mesh(GANG; tp = RANKS)
    @test length(mesh.tp) == RANKS && length(mesh.dp) == 1 && Gangway.coordinate(mesh, "tp").index == ME
    @test length(mesh["dp_shard+tp"]) == RANKS
    @test length(Gangway.parallel_gangs(GANG).dp) == RANKS
    places = Gangway.gangs_of(; root = mesh.root, dp = mesh.dp, rdp = mesh.rdp, sdp = mesh.sdp, tp = mesh.tp,
                              pp = mesh.pp, cp = mesh.cp)
    @test Gangway.coordinate(places, "tp").index == ME
    @test Gangway.mesh_preset("hsdp", 4) == (pp = 1, dp_replicate = -1, dp_shard = 4, cp = 1, tp = 1)
    @test refused(() -> Gangway.mesh_preset("zero"), "single, ddp"; kind = Gangway.InvalidArgument)
    @test length(Gangway.fsdp_gangs(Gangway.mesh(GANG)).sdp) == RANKS
    @test refused(() -> Gangway.mesh(GANG; tp = 3), "3"; kind = Gangway.InvalidArgument)
    Gangway.shutdown(mesh)
end

fact("ranks meet by an id") do
    id = bcast!(GANG, ME == 0 ? Gangway.gang_id() : zeros(UInt8, 64))
    gang = Gangway.Gang(; id = id, rank = ME, size = RANKS, timeout_ms = 600_000)
    @test Gangway.rank(gang) == ME && allreduce(gang, [1.0]) == [RANKS]
    Gangway.shutdown(gang)
end

fact("a shard group's first values are split over the ranks"; on_host = "it reads whole values in Julia") do
    values = reshape(Float32.(1:21), 3, 7)
    group = ShardGroup(GANGS, "given", "w" => values, "b" => Float64[1, 2])
    @test unshard!((w, b) -> copy(w), group) == values && unshard!((w, b) -> copy(b), group) == [1, 2]
    model = Model(group)
    weight = model["given.w"]
    rows = Gangway.describe(weight)
    Gangway.assign!(weight, 2 .* values[:, rows.first_row+1:rows.last_row])
    @test Gangway.gathered(weight) == 2 .* values
end

fact("ranks meet by an all-gather of the program's own") do
    gang = Gangway.Gang(; all_gather = bytes -> vec(allgather(GANG, bytes)), rank = ME, size = RANKS)
    @test allreduce(gang, [1.0]) == [RANKS]
    Gangway.shutdown(gang)
end

# A store of the program's own in a folder: what is put is there whole.
function folder_store(folder, taken)
    file(key) = joinpath(folder, bytes2hex(codeunits(key)))
    put(key, value) = (write(file(key) * ".$ME", value); mv(file(key) * ".$ME", file(key); force = true))
    get(key) = (push!(taken, key); isfile(file(key)) ? read(file(key)) : nothing)
    return Gangway.Store(put, get, key -> rm(file(key); force = true))
end

fact("ranks meet in a store of Julia functions") do
    folder, taken = Gangway.bcast_object(GANG, ME == 0 ? mktempdir() : nothing; allow_serialization = true), String[]
    gang = Gangway.Gang(; store = folder_store(folder, taken), rank = ME, size = RANKS, timeout_ms = 600_000)
    @test Gangway.rank(gang) == ME && allreduce(gang, [1.0]) == [RANKS] && !isempty(taken)
    Gangway.shutdown(gang)
end

# One global batch of RANKS x 2 rows (4 and 4 at most), whatever the mesh.
const ROWS = 4
tokens_of(step, rows) = Int64[mod(7i + 5r + 3step, 32) for i in 1:8, r in rows]
my_rows() = (shard = Gangway.data_shard(GANGS); ROWS÷shard.count*shard.index+1:ROWS÷shard.count*(shard.index+1))

function losses(gangs, rows; keywords...)
    model = parallelize!(Llama(dim = 16, layers = 2, heads = 2, vocab = 32), gangs; seed = 9, keywords...)
    opt = AdamW(model; lr = 0.01)
    return [train_step!(model, opt, tokens_of(s, rows); max_grad_norm = 1).loss for s in 1:5], model
end

fact("training gives the losses of one rank on every mesh and strategy") do
    alone, _ = losses(nothing, 1:ROWS)
    for strategy in (:full_shard, :shard_grad_op, :no_shard)
        found, model = losses(GANGS, my_rows(); strategy = strategy, recompute = :selective)
        @test found ≈ alone rtol = 1e-4
        info = Gangway.describe(model["lm_head.weight"])
        @test info.dims == (16, 32)
        strategy === :full_shard && RANKS > 1 && @test info.last_row - info.first_row < 32
        @test size(Gangway.gathered(model["lm_head.weight"])) == (16, 32)
    end
end

fact("a model saved by all ranks is loaded by each alone") do
    folder = Gangway.bcast_object(GANG, ME == 0 ? mktempdir() : nothing; allow_serialization = true)
    _, model = losses(GANGS, my_rows())
    Gangway.save(model, folder)
    alone = Gangway.load!(parallelize!(Llama(dim = 16, layers = 2, heads = 2, vocab = 32)), folder)
    for p in Gangway.parameters(model)
        @test Gangway.gathered(p) == Gangway.gathered(alone[Gangway.describe(p).name])
    end
    barrier(GANG)
end

fact("a shard group's gradients are summed over the ranks"; on_host = "it reads whole values in Julia") do
    group = ShardGroup(GANGS, "line", Parameter("w", (3, 5); kind = :ones), Parameter("b", (1,); kind = :zeros); seed = 1)
    opt = SGD(Model(group); lr = 1.0)
    unshard!(group) do w, b
        add_gradients!(group, fill(Float32(ME + 1), 3, 5), Float32[1])
    end
    reduce!(group)
    step!(opt; scale = 1 / RANKS)
    unshard!(group) do w, b
        @test w ≈ fill(1 - sum(1:RANKS) / RANKS, 3, 5) && b ≈ [-1]
    end
end

include("plan_facts.jl")
include("full_value_facts.jl")

fact("what a callback throws comes out as itself on its rank, and the others learn of it"; on_host = "its closures compute in Julia") do
    gangs = Gangway.init()
    failing = RANKS - 1
    model = Custom(; name = "thrower", outputs = 2, parameters = ["w" => (4,)],
                   shapes = inputs -> [(Float64, (1,)), (Float64, (1,))],
                   forward = call -> (ME == failing && throw(KeyError(:mine)); call.outputs[1] .= 1; call.outputs[2] .= 1),
                   backward_input = call -> nothing)
    parallelize!(model, gangs)
    opt = SGD(model)
    e = thrown(() -> train_step!(model, opt, ones(Float32, 2, 1); weight = 1))
    ME == failing && @test e isa KeyError && e.key === :mine
    ME == failing || @test e isa Union{Gangway.CallerFailed,Gangway.Aborted} && occursin("thrower", e.message) &&
                          occursin("mine", e.message)
end

# --- failures, each on a gang of its own; the last facts, for they break what they use -----------------------------------

if RANKS > 1
    fact("replicas that differ are told by element") do
        model = parallelize!(Linear(3, 2), GANGS; strategy = :no_shard)
        Gangway.check_replicas(model)
        whole = ones(Float32, 3, 2)
        whole[3, 2] = ME
        Gangway.assign!(model["weight"], whole)
        e = thrown(() -> Gangway.check_replicas(model))
        @test e isa Gangway.Mismatch && occursin("weight[1, 2] is 0 on rank 0, 1 on rank 1", e.message)
    end

    fact("different calls are a mismatch on every rank") do
        gang = Gangway.duplicate(GANG)
        e = thrown(() -> ME == 0 ? allreduce!(gang, ones(3)) : bcast!(gang, ones(3)))
        @test e isa Gangway.Mismatch && occursin("all_reduce", e.message) && occursin("broadcast", e.message)
    end

    fact("a wait that runs out is harmless, and an abort wakes every rank") do
        gang = Gangway.duplicate(GANG)
        if ME == 0
            work = recv_async!(gang, zeros(3), 1)
            @test thrown(() -> wait(work; timeout_ms = 5)) isa Gangway.NotReady
            @test !isready(work)
            Gangway.abort(gang, "enough of it")
            @test refused(() -> wait(work), "enough of it"; kind = Gangway.Aborted)
            @test thrown(() -> Gangway.work_error(work)) isa Gangway.Aborted
        else
            @test refused(() -> recv!(gang, zeros(3), 0), "enough of it"; kind = Gangway.Aborted)
        end
        @test thrown(() -> Gangway.async_error(gang)) isa Gangway.Aborted
        survivors = Gangway.shrink(gang, OTHERS)
        @test allreduce(survivors, [1]) == [RANKS]
    end
end

fact("shutdown is orderly, and later calls are refused") do
    gang = GANGS.dp
    Gangway.shutdown(GANGS)
    @test thrown(() -> barrier(gang)) isa Gangway.InvalidState
    @test thrown(() -> barrier(GANG)) isa Gangway.InvalidState
end

exit(report_counts() ? 0 : 1)
