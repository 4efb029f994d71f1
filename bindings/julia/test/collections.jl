# Collections while collectives are under way, and writes to memory that is read-only: facts of compiled code, on every
# rank of a gang. Started by gangrun.
using Gangway, Test, Random
using Gangway: wait_all

include("facts.jl")

const GANGS = start(; timeout_ms = 600_000)
const GANG = GANGS.root
const ME, RANKS = Gangway.rank(GANG), length(GANG)
const OTHERS = 0:RANKS-1

@noinline function drop_handles()
    for _ in 1:20
        Linear(2, 2)
        Gangway.Tensor(ones(2))
        barrier_async(Gangway.fake_gang(0, 2))
    end
end

fact("collections in the middle of collectives disturb nothing") do
    rng = MersenneTwister(ME)
    for round in 1:100
        works, arrays = Gangway.Work[], Vector{Float64}[]
        for i in 1:10
            x = fill(Float64(ME + i), 1000)
            push!(works, allreduce_async!(GANG, x))
            push!(arrays, x)
            i % 3 == 0 && (drop_handles(); GC.gc(round % 10 == 0))
        end
        shuffle!(rng, works)
        wait_all(works)
        @test all(i -> arrays[i] == fill(Float64(sum(OTHERS) + RANKS * i), 1000), 1:10)
    end
end

@noinline function start_and_forget(gang, count)
    for i in 1:count
        allreduce_async!(gang, rand(500))
    end
end

fact("arrays of works that nothing refers to live until the work is done") do
    gang = Gangway.duplicate(GANG)
    for _ in 1:20
        start_and_forget(gang, 10)
        GC.gc()
        garbage = [rand(500) for _ in 1:100]
        @test allreduce(gang, [1.0]) == [RANKS]
    end
    gang = nothing
    barrier(GANG)
    @test collect_all() <= 2
end

# A Linear in Julia, as a training root; `between` runs in every callback.
function linear_root(between)
    loss(call) = sum(abs2, call.inputs[1]' * call.parameters[1]) / 2
    return Custom(; name = "root", outputs = 2, parameters = ["w" => (6,)],
        forward = call -> begin
            between()
            call.outputs[1][1], call.outputs[2][1] = loss(call), size(call.inputs[1], 2)
            call.state = copy(call.inputs[1])
            between()
        end,
        backward_input = call -> (between(); foreach(g -> g === nothing || fill!(g, 0), call.input_grads)),
        backward_weight = call -> begin
            between()
            x, w = call.state, call.parameters[1]
            call.parameter_grads[1] .+= Float32(call.loss_scale) .* (x * (x' * w))
            between()
        end)
end

# The bits of the parameter after some steps.
function trained(gangs, between)
    model = parallelize!(linear_root(between), gangs; seed = 3)
    opt = AdamW(model; lr = 0.1)
    for step in 1:5
        x = Float32[sin(i + 10j + 100step + 1000ME) for i in 1:6, j in 1:4]
        train_step!(model, opt, x; weight = 4, max_grad_norm = 1)
        between()
    end
    return reinterpret(UInt32, copy(Gangway.gathered(model["w"])))
end

fact("collections in callbacks and between steps change no bit of a training") do
    gangs = Gangway.init(; timeout_ms = 600_000)
    quiet = trained(gangs, () -> nothing)
    @test trained(gangs, () -> (drop_handles(); GC.gc(false))) == quiet
    @test trained(gangs, () -> GC.gc(true)) == quiet
end

fact("collections while values are whole take nothing that is in use") do
    gangs = Gangway.init(; timeout_ms = 600_000)
    group = ShardGroup(gangs, "g", Parameter("w", (RANKS, 50); kind = :ones); seed = 1)
    opt = SGD(Model(group); lr = 1.0)
    for step in 1:10
        work = Gangway.unshard_async!(group)
        drop_handles()
        work = nothing
        GC.gc(step % 5 == 0)
        unshard!(group) do w
            GC.gc(false)
            @test all(==(2.0f0 - step), w)
            add_gradients!(group, fill(1.0f0, RANKS, 50))
            GC.gc(false)
        end
        reduce!(group)
        step!(opt; scale = 1 / RANKS)
    end
end

fact("collections of another thread disturb no collective") do
    Threads.nthreads() > 1 || return skip("a collecting thread", "Julia has one thread here")
    collections, rounds, done = Threads.Atomic{Int}(0), Threads.Atomic{Int}(0), Threads.Atomic{Int}(0)
    result = Ref{Any}(nothing)
    # Every rank says when it has seen enough of them.
    reduce_until_enough() = while true
        enough = collections[] >= 10
        sums = allreduce(GANG, [Float64(enough); fill(1.0, 999)])
        all(==(RANKS), sums[2:end]) || return "a wrong sum"
        sums[1] == RANKS && return "well"
        rounds[] += 1
    end
    # Once for each round: without a pause the other thread might never leave the one before.
    collect_in_rounds() = while done[] == 0
        round = rounds[]
        GC.gc(false)
        collections[] += 1
        while rounds[] == round && done[] == 0
            GC.safepoint()
            ccall(:sched_yield, Cint, ())
        end
    end
    Threads.@threads :static for thread in 1:2
        thread == 2 && collect_in_rounds()
        thread == 2 && continue
        result[] = try
            reduce_until_enough()
        catch exception
            exception
        end
        done[] = 1
    end
    @test result[] == "well"
end

# Whole values of a shard group are read-only where ranks are processes.
fact("a write to full values is a ReadOnlyMemoryError") do
    group = ShardGroup(Gangway.init(), "g", "w" => (3, 4); seed = 1)
    unshard!(group) do w
        before = copy(w)
        @test thrown(() -> (w[1] = 7)) isa ReadOnlyMemoryError
        @test thrown(() -> fill!(parent(w), 7)) isa ReadOnlyMemoryError
        @test w == before
    end
end

# Without shared regions the memory of full values goes, or is used again, at the reshard.
fact("a work that is under way at the reshard has the full values to its end") do
    gangs = Gangway.init()
    first_group, other = (ShardGroup(gangs, name, Parameter("w", (500_000, RANKS); kind = kind))
                          for (name, kind) in (("first", :ones), ("other", :zeros)))
    next, before = mod(ME + 1, RANKS), mod(ME - 1, RANKS)
    twin = Gangway.duplicate(GANG)
    forms = ((w -> send_async(twin, w, next)), (w -> send_async(twin, vec(w), next)),
             (w -> Gangway.run_batch(twin, [Gangway.Collective(:send; input = w, peer = next)])))
    for form in forms
        w, = unshard!(first_group)
        record = Gangway.Collective(:send; input = w, peer = next)
        for x in (w, vec(w), view(w, :, 1), (nothing, w), [w], Any[w], record, [record])
            @test map(isopen, collect(Gangway.lent_tensors(x))) == [true] # what a work keeps
        end
        work = form(w)
        reshard!(first_group)
        unshard!(other)
        GC.gc(false)
        barrier(GANG)
        got = fill(7.0f0, 500_000, RANKS)
        recv!(twin, got, before)
        wait(work)
        @test all(==(1), got) && isempty(w)
        reshard!(other)
    end
end

Gangway.shutdown(GANGS)
exit(report_counts() ? 0 : 1)
