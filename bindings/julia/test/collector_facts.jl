# Collections while collectives are under way. Included by ranks.jl.

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
