# Handles and callbacks: released once, in any order. One process.
using Gangway, Random, Test
using Gangway: LibGangway

include("facts.jl")

const ONE = Gangway.Gang()

# Everything that hangs together, dropped in the order of `order`.
@noinline function family()
    gangs = Gangway.init()
    root = gangs.root
    model = parallelize!(Llama(dim = 16, layers = 1, heads = 2, vocab = 32), gangs)
    opt = AdamW(model)
    train_step!(model, opt, ones(Int64, 4, 2))
    parameter = first(Gangway.parameters(model))
    frame = Gangway.Frame(model)
    group = ShardGroup(gangs, "g", "w" => (3,))
    work = allreduce_async!(root, ones(3))
    memory = Gangway.alloc(root, Float64, 4)
    state = Gangway.state_array(parameter, opt, "exp_avg")
    return Any[gangs, root, model, opt, parameter, frame, group.handle, work, memory, state, Model(group)]
end

orders(list) = isempty(list) ? [Int[]] : [[first; rest] for first in list for rest in orders(setdiff(list, first))]

# Gangs, model, optimizer, what hangs on a model, what hangs on a gang: members of a family, by place.
const PARTS = ([1, 2], [3], [4], [5, 6, 10], [7, 8, 9, 11])

fact("handles are finalised in every order, and what is left still works") do
    rng = MersenneTwister(1)
    @test length(orders(1:5)) == 120
    for order in orders(1:5)
        members = family()
        memory, state = members[9], members[10]
        for part in order, i in shuffle(rng, PARTS[part])
            finalize(members[i] isa Gangway.Borrowed ? members[i].owner : members[i])
            isopen(state.owner) && @test all(isfinite, state)
            members[9].owner.data == C_NULL || (memory .= part)
        end
        @test !isopen(members[3]) && thrown(() -> Gangway.memory_use(members[3])) isa Gangway.InvalidState
    end
    for _ in 1:20
        family()
    end
    @test collect_all() <= 1
end

fact("a released handle is refused, and releasing it again does nothing") do
    model = Linear(2, 2)
    Gangway.release!(model)
    Gangway.release!(model)
    finalize(model)
    @test !isopen(model)
    @test refused(() -> parallelize!(model), "the Model was released"; kind = Gangway.InvalidState)
end

fact("a callback's object is freed once, also when registering it failed") do
    empty = collect_all()
    made = plain_custom()
    held = last(Gangway.PINS)
    @test held.frees == 0
    finalize(made)
    @test held.frees == 1
    # Refused: input_count.
    @test thrown(() -> plain_custom(; inputs = -1)) isa Gangway.InvalidArgument
    @test last(Gangway.PINS).frees == 1
    # Refused: the parameter's dims; its initialiser is freed too.
    bad = Parameter("w", (0, -1); fill = (first, last, out) -> nothing)
    @test thrown(() -> plain_custom(; parameters = [bad])) isa Gangway.InvalidArgument
    @test all(p -> p.frees == 1, Gangway.PINS[empty+1:end])
    # A store.
    store = Gangway.Store((k, v) -> nothing, k -> nothing, k -> nothing)
    held = last(Gangway.PINS)
    finalize(store)
    @test held.frees == 1
    # A start-up of the program's own.
    gang = Gangway.Gang(; all_gather = identity, rank = 0, size = 1)
    @test last(Gangway.PINS).frees == 1
    thrown(() -> Gangway.Gang(; all_gather = bytes -> error("no pipe"), rank = 0, size = 1))
    @test last(Gangway.PINS).frees == 1
    @test collect_all() == empty
end

fact("a module's states are freed once: replaced, used up, or left by an evaluation") do
    empty = collect_all()
    model = parallelize!(plain_custom(; forward = call -> begin
        call.state = "first"
        call.state = "second"
        copyto!(call.outputs[1], call.inputs[1])
    end))
    frame = Gangway.Frame(model)
    Gangway.forward(model, Float32[1]; frame = frame)
    Gangway.backward(model, frame, Float32[1])
    Gangway.forward(model, Float32[1]) # evaluation
    states = filter(p -> p.frees > 0, Gangway.PINS[empty+1:end])
    @test [p.frees for p in states] == fill(1, 4)
    foreach(finalize, (frame, model))
    @test collect_all() == empty
end

fact("a work keeps its arrays until it is done, and no longer") do
    gang = Gangway.fake_gang(0, 2)
    x = ones(4)
    work = allreduce_async!(gang, x)
    wait(work)
    @test isready(work) && x == fill(2.0, 4)
    Gangway.work_error(work)
    Gangway.order(work)
    Gangway.release!(work)
    here, there = Gangway.thread_gangs(2)
    work = recv_async!(here, x, 1)
    held = last(Gangway.PINS)
    @test held.object === x && held.frees == 0
    sent = send_async(there, fill(5.0, 4), 0)
    foreach(wait, (work, sent))
    Gangway.release!(work)
    @test x == fill(5.0, 4) && held.frees == 1 && held.object === nothing
end

fact("a work's arrays are held before it starts, and let go when it does not start") do
    x, gang = ones(4), Gangway.fake_gang(0, 2)
    pinned_at_start = Ref(false)
    work = Gangway.start(x) do out
        held = last(Gangway.PINS)
        pinned_at_start[] = held.object === x && held.frees == 0
        LibGangway.gw_gang_barrier_async(gang, C_NULL, out)
    end
    @test pinned_at_start[]
    wait(work)
    @test thrown(() -> recv_async!(gang, x, 7)) isa Gangway.InvalidArgument
    held = last(Gangway.PINS)
    @test held.frees == 1 && held.object === nothing
end

# A function of its own, so that no local variable keeps the array.
@noinline function work_of_garbage(gang)
    x = ones(4)
    wait(Gangway.allreduce_async!(gang, x))
    return WeakRef(x)
end

fact("an array that a done work kept goes with the next collection") do
    gang = Gangway.fake_gang(0, 2)
    weak = work_of_garbage(gang)
    GC.gc(true) # finalises the work
    GC.gc(true)
    @test weak.value === nothing
end

fact("lent arrays become empty when the loan ends") do
    group = ShardGroup(nothing, "g", "w" => (2, 3))
    w, = unshard!(group)
    @test size(w) == (2, 3)
    reshard!(group)
    @test size(w) == (0, 0) && thrown(() -> w[1]) isa BoundsError
    kept = Ref{Any}(nothing)
    @test thrown(() -> unshard!(w -> (kept[] = w; error("inside")), group)) isa ErrorException
    @test isempty(kept[])
end

exit(report_counts() ? 0 : 1)
