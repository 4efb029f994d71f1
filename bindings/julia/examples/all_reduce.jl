# All-reduce over the ranks of a gang.
#   gangrun -n 4 julia --project=bindings/julia bindings/julia/examples/all_reduce.jl
using Gangway

gang = Gangway.Gang() # the environment decides; nothing set: one rank
rank, ranks = Gangway.rank(gang), length(gang)

x = Gangway.alloc(gang, Float32, 1000) # peers reach this memory directly; any array works too
x .= rank + 1

allreduce!(gang, x)
println("rank $rank of $ranks: sum ", Int(x[1]))

work = allreduce_async!(gang, x; op = :max) # the same, while this rank does something else
wait(work)
@assert all(x .== sum(1:ranks))
Gangway.shutdown(gang)
