# Handles and callbacks: released once, in any order, and nothing is left behind.
using Random

const ONE, READY = Gangway.Gang(), parallelize!(Linear(4, 4))

make_one(kind) =
    kind === :gang ? Gangway.Gang() :
    kind === :fake ? Gangway.fake_gang(0, 2) :
    kind === :linear ? Linear(4, 4) :
    kind === :llama ? Llama(dim = 8, layers = 1, heads = 1) :
    kind === :tensor ? Gangway.Tensor(ones(Float32, 8, 8)) :
    kind === :custom ? plain_custom() :
    kind === :work ? barrier_async(ONE) :
    kind === :frame ? Gangway.Frame(READY) :
    kind === :parameter ? only(Gangway.parameters(READY)) :
    kind === :optimizer ? AdamW(READY) :
    kind === :group ? ShardGroup(nothing, "g", "w" => (3,)).handle :
    kind === :store ? Gangway.Store((k, v) -> nothing, k -> nothing, k -> nothing) :
    kind === :memory ? Gangway.alloc(ONE, Float64, 8).owner :
    error("no $kind")

plain_custom(; keywords...) = Custom(; shapes = identity, forward = call -> copyto!(call.outputs[1], call.inputs[1]),
                                     backward_input = call -> copyto!(call.input_grads[1], call.output_grads[1]),
                                     keywords...)

@noinline function make_and_release(kind, count)
    for i in 1:count
        one = make_one(kind)
        # Half by hand, half by the collector.
        iseven(i) && Gangway.release!(one)
    end
end

fact("10,000 handles of each kind are made and released in the memory of a few") do
    for (kind, count) in (:linear => 10_000, :tensor => 10_000, :fake => 10_000, :custom => 10_000, :llama => 10_000,
                          :gang => 10_000, :work => 10_000, :memory => 10_000, :frame => 10_000, :parameter => 10_000,
                          :optimizer => 10_000, :group => 10_000, :store => 10_000)
        make_and_release(kind, count) # the collector's own lists grow to what they need
        pins, before = collect_all(), allocated_bytes()
        make_and_release(kind, count)
        @test collect_all() == pins
        grown = allocated_bytes() - before
        grown < 16count || println("      $kind grew by $grown bytes")
        # A leak of the smallest object each would be 16 bytes times the count.
        @test grown < 16count
    end
end

# Everything that hangs together, dropped in the order of `order`.
@noinline function family()
    gangs = Gangway.init()
    root = gangs.root
    model = parallelize!(Llama(dim = 16, layers = 1, heads = 2, vocab = 32), gangs)
    opt = AdamW(model)
    train_step!(model, opt, ones(Int64, 4, 2), ones(Int64, 4, 2))
    parameter = first(Gangway.parameters(model))
    frame = Gangway.Frame(model)
    group = ShardGroup(gangs, "g", "w" => (3,))
    work = allreduce_async!(root, ones(3))
    memory = Gangway.alloc(root, Float64, 4)
    state = Gangway.state_array(parameter, opt, "exp_avg")
    return Any[gangs, root, model, opt, parameter, frame, group.handle, work, memory, state, Model(group)]
end

fact("handles are finalised in any order, and what is left still works") do
    rng = MersenneTwister(1)
    for round in 1:20
        members = family()
        memory, state = members[9], members[10]
        for i in shuffle(rng, 1:length(members))
            finalize(members[i] isa Gangway.Borrowed ? members[i].owner : members[i])
            isopen(state.owner) && @test all(isfinite, state)
            members[9].owner.data == C_NULL || (memory .= round)
        end
        @test !isopen(members[3]) && thrown(() -> Gangway.memory_use(members[3])) isa Gangway.InvalidArgument
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
    @test refused(() -> parallelize!(model), "null"; kind = Gangway.InvalidArgument)
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
