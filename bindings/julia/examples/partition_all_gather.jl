# Pieces of size (4, 7, 3), one of each worker, are joined along the first dim; then the adjoint.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/partition_all_gather.jl
using Gangway, Printf

# <a, b>, summed over all workers.
inner(gang, a, b) = Gangway.allsum(gang, sum(a .* b))

Gangway.init() do gangs
    gang = gangs.root
    rank, workers = Gangway.rank(gang), length(gang)
    grid = Gangway.cartesian(Gangway.Partition(gang), workers, 1, 1) # each dim cuts a dim of the array
    gather = AllGather(grid; dims = 1)

    # Made-up numbers that differ between ranks and places.
    numbers(count, first, factor, modulus) = [(rank + first) * i * factor % modulus / 1000 - 1 for i in 1:count]
    x = reshape(numbers(3 * 7 * 4, 3, 7919, 2003), 4, 7, 3)
    y = reshape(numbers(3 * 7 * 4 * workers, 5, 6271, 1999), 4 * workers, 7, 3)
    joined = gather(x)                     # (4 * workers, 7, 3)
    dx = Gangway.backward(gather, y)       # (4, 7, 3)

    left, right = inner(gang, joined, y), inner(gang, x, dx)
    rank == 0 && @printf("[%s]: <F x, y> = %.9f, <x, F* y> = %.9f\n", join(reverse(size(joined)), ", "), left, right)
    @assert abs(left - right) < 1e-9
end
