# Partitions over four ranks: started by gangrun.
using Gangway, Test
using Gangway: Partition, rank, index, cartesian, inclusive, subtopology, neighbors, is_active, backward

include("facts.jl")

const GANG = start(; timeout_ms = 600_000).root
const ME = Gangway.rank(GANG)

# A number for each rank and place.
brings(r, dims) = reshape([((r + 3) * i * 7919 % 2003) / 1000 - 1 for i in 1:prod(dims)], dims)
total(x) = Gangway.allsum(GANG, x)

# F x, after <F x, y> = <x, F* y>.
function adjoint_holds(movement, x)
    out = movement(x)
    y = brings(ME + 20, size(out))
    back = backward(movement, y)
    left = total(sum(Float64[out .* y...]))
    right = total(x === nothing ? 0.0 : sum(Float64[x .* back...]))
    @test left ≈ right atol = 1e-12
    return out
end

fact("a partition is a list of workers in a grid, with dims as arrays have them") do
    all = Partition(GANG)
    grid = cartesian(all, 2, 2)
    place = Tuple(CartesianIndices((2, 2))[ME+1])
    @test (length(grid), size(grid), Gangway.rank(grid), index(grid)) == (4, (2, 2), ME, place)
    @test neighbors(grid, 1) == (before = place[1] == 1 ? nothing : ME - 1, after = place[1] == 2 ? nothing : ME + 1)
    few = inclusive(all, [3, 1])
    @test Gangway.rank(few) == get(Dict(3 => 0, 1 => 1), ME, nothing)
    @test is_active(few) == (ME in (1, 3)) && (index(few) === nothing) == !is_active(few)
    @test length(union(few, inclusive(all, [0, 1]))) == 3
    @test Gangway.rank(subtopology(grid, 1)) == place[1] - 1
    @test occursin("Partition(2, 2) at", string(grid))
    @test occursin("has 3 places, but the partition has 4", thrown(() -> cartesian(all, 3)).message)
    @test occursin("dim 3 is not 1 to 2", sprint(showerror, thrown(() -> subtopology(grid, 3))))
end

fact("movements along a dim") do
    grid = cartesian(Partition(GANG), 2, 2)
    x = brings(ME, (2, 3))
    column = index(grid)[2]
    @test adjoint_holds(AllGather(grid; dims = 1), x) == vcat((brings(r, (2, 3)) for r in (2column - 2, 2column - 1))...)
    @test size(adjoint_holds(AllGather(grid; keep = (1,)), x)) == (2, 6)
    part = adjoint_holds(ReduceScatter(grid; dims = 1), brings(ME, (3, 2)))
    @test size(part) == (index(grid)[1] == 1 ? 2 : 1, 2)
    @test adjoint_holds(AllSumReduce(grid; dims = ()), x) == x
    @test adjoint_holds(AllSumReduce(grid; dims = (1, 2)), x) ≈ sum(brings(r, (2, 3)) for r in 0:3)
    halved = AllSumReduce(grid; dims = (1, 2), backward_scale = 0.5)
    @test halved([1.0]) == [4.0] && backward(halved, [1.0]) == [2.0]
    @test occursin("the axes name 2", thrown(() -> AllGather(grid; dims = (1, 2))).message)
    @test occursin("neither axes nor axes_keep", thrown(() -> AllGather(grid)).message)
    Gangway.release!(halved)
end

fact("movements between partitions") do
    all = Partition(GANG)
    grid = cartesian(all, 2, 2)
    row = cartesian(inclusive(all, [0, 3]), 1, 2)
    own = is_active(row) ? [Float64(ME)] : nothing
    @test adjoint_holds(BroadcastTo(row, grid), own) == [ME < 2 ? 0.0 : 3.0]
    @test adjoint_holds(SumReduce(grid, row), [Float64(ME)]) == (ME == 0 ? [1.0] : ME == 3 ? [5.0] : Float64[])
    turned = BroadcastTo(cartesian(inclusive(all, [0, 3]), 2, 1), grid; transpose_source = true)
    @test turned(own) == [ME < 2 ? 0.0 : 3.0]
    whole = reshape(collect(1.0:20.0), 4, 5)
    rows, target = cartesian(all, 4, 1), cartesian(inclusive(all, [2, 0]), 1, 2)
    out = adjoint_holds(Repartition(rows, target), whole[ME+1:ME+1, :])
    @test out == (ME == 2 ? whole[:, 1:3] : ME == 0 ? whole[:, 4:5] : Float64[])
    gather = AllGather(inclusive(all, [0, 3]); dims = 1)
    pair = ME in (0, 3) ? [1.0, 2.0] : nothing
    @test gather(pair) == (ME in (0, 3) ? [1.0, 2.0, 1.0, 2.0] : Float64[])
    # Every rank hears what one of them did wrong.
    @test occursin("rank 1 is no worker of the partition", thrown(() -> gather(ME == 1 ? [1.0] : pair)).message)
    @test gather(pair) == (ME in (0, 3) ? [1.0, 2.0, 1.0, 2.0] : Float64[])
end

exit(report_counts() ? 0 : 1)
