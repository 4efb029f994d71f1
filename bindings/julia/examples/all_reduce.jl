# Every rank brings an array; all get the sum.
#   gangrun -n 4 julia --project=bindings/julia bindings/julia/examples/all_reduce.jl
using Gangway

Gangway.init() do gangs
    gang = gangs.root
    rank, ranks = Gangway.rank(gang), length(gang)

    # Any array works; one of the gang's memory is reached by the peers directly.
    x = Gangway.alloc(gang, Float32, 2, 3)
    x .= rank + 1
    allreduce!(gang, x)
    @assert all(x .== sum(1:ranks))

    # Stacked over the last dim: size (2, ranks).
    everyone = allgather(gang, Float64[rank, 10rank])
    @assert everyone[:, end] == [ranks - 1, 10(ranks - 1)]

    # Started now, waited for later; the work keeps the array alive.
    means = fill(Float64(rank), 4)
    work = allreduce_async!(gang, means; op = :mean)
    wait(work)
    @assert all(means .≈ (ranks - 1) / 2)

    rank == 0 && println("sum over $ranks ranks: ", x[1], ", mean: ", means[1])
end
