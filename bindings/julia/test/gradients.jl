# The rules of reverse mode over four ranks, started by gangrun: <F x, y> = <x, F* y>, and differences of f64
# numbers.
push!(LOAD_PATH, joinpath(@__DIR__, "stubs"))
using Gangway, Test
using Gangway: Partition, cartesian, inclusive, is_active
import ChainRulesCore
using ChainRulesCore: rrule, NoTangent, Thunk, ZeroTangent

isdefined(Base, :get_extension) && Base.get_extension(Gangway, :GangwayChainRulesCoreExt) !== nothing ||
    include(joinpath(@__DIR__, "..", "ext", "GangwayChainRulesCoreExt.jl"))
include("facts.jl")

const GANG = start(; timeout_ms = 600_000).root
const ME = Gangway.rank(GANG)
const WORKERS = Partition(GANG)

brings(r, dims) = reshape([((r + 3) * i * 7919 % 2003) / 1000 - 1 for i in 1:prod(dims)], dims)
total(x) = Gangway.allsum(GANG, x)

# The pullback is the adjoint, and agrees with differences of the sum of all ranks' <F x, dy>, one rank's x at
# a time.
function gradient_holds(call, arguments, x; keywords...)
    run(given) = call === nothing ? arguments[1](given) : call(arguments..., given; keywords...)
    y, pullback = call === nothing ? rrule(arguments[1], x) : rrule(call, arguments..., x; keywords...)
    @test y == run(x)
    dy = brings(ME + 20, size(y))
    dx = pullback(Thunk(dy))[end]
    loss(given) = total(sum(Float64[run(given) .* dy...]))
    @test loss(x) ≈ total(x === nothing ? 0.0 : sum(Float64[x .* dx...])) atol = 1e-12
    for r in 0:length(GANG)-1 # the operator is linear, so that a large step has no error but rounding
        step = x === nothing || r != ME ? x : x .+ 1
        difference = loss(step) - loss(x)
        @test difference ≈ total(x === nothing || r != ME ? 0.0 : sum(Float64[dx...])) atol = 1e-12
    end
    none = pullback(ZeroTangent())[end]
    @test x === nothing ? none isa NoTangent : all(iszero, none)
    return dx
end

fact("movements have rules") do
    grid = cartesian(WORKERS, 2, 2)
    row = cartesian(inclusive(WORKERS, [0, 3]), 1, 2)
    gradient_holds(nothing, (AllGather(grid; dims = 1),), brings(ME, (2, 3)))
    gradient_holds(nothing, (ReduceScatter(grid; dims = 1),), brings(ME, (3, 2)))
    gradient_holds(nothing, (AllSumReduce(grid; dims = (1, 2)),), brings(ME, (2,)))
    gradient_holds(nothing, (BroadcastTo(row, grid),), is_active(row) ? [Float64(ME) + 1] : nothing)
    gradient_holds(nothing, (SumReduce(grid, row),), [Float64(ME) + 1])
    gradient_holds(nothing, (Repartition(cartesian(WORKERS, 4, 1), grid),), brings(ME, (1, 5)))
end

fact("collectives have rules") do
    gradient_holds(allreduce, (GANG,), brings(ME, (3,)))
    gradient_holds(allreduce, (GANG,), brings(ME, (3,)); op = :mean)
    gradient_holds(allgather, (GANG,), brings(ME, (2, 1)))
    gradient_holds(reducescatter, (GANG,), brings(ME, (2, 4)))
    gradient_holds(reducescatter, (GANG,), brings(ME, (1, 4)); op = :mean)
    gradient_holds(bcast, (GANG,), brings(ME, (3,)); root = 2)
    gradient_holds(alltoall, (GANG,), brings(ME, (3, 4)))
    @test refused(() -> rrule(allreduce, GANG, [1.0]; op = :max), "gradients go through :sum and :mean alone")
end

fact("several forwards of other sizes come before their pullbacks") do
    gather = AllGather(WORKERS; dims = 1)
    first_y, first_back = rrule(gather, brings(ME, (3,)))
    second_y, second_back = rrule(gather, brings(ME, (1,)))
    @test (length(first_y), length(second_y)) == (12, 4)
    @test first_back(ones(12))[2] == fill(4.0, 3)
    @test second_back(ones(4))[2] == [4.0]
end

exit(report_counts() ? 0 : 1)
