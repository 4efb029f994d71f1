# Ranks as threads of this process, and collections while they wait. Started with two threads.
using Gangway, Test
include("facts.jl")

const RANKS = 2

function on_ranks(f)
    gangs = Gangway.thread_gangs(RANKS)
    results = Vector{Any}(nothing, RANKS)
    Threads.@threads :static for thread in 1:Threads.nthreads()
        thread <= RANKS || continue
        results[thread] = try
            f(gangs[thread])
        catch exception
            exception
        end
    end
    return results
end

fact("threads are ranks, and collections go on while one waits") do
    results = on_ranks() do gang
        for i in 1:200
            # One rank collects while the other waits for it.
            Gangway.rank(gang) == i % RANKS && GC.gc(false)
            allreduce(gang, fill(1.0, 100)) == fill(2.0, 100) || return "wrong sum"
            wait(allreduce_async!(gang, rand(100)))
        end
        return "well"
    end
    @test results == fill("well", RANKS)
end

fact("each thread gets its own errors") do
    results = on_ranks() do gang
        thrown(() -> bcast!(gang, [1.0]; root = 10 + Gangway.rank(gang)))
    end
    @test [r isa Gangway.InvalidArgument for r in results] == [true, true]
    @test occursin("rank 10 is outside", results[1].message) && occursin("rank 11 is outside", results[2].message)
end

exit(report_counts() ? 0 : 1)
