# A program with its own compute and its own loop; gangway only shards: y = w' x + b, two microbatches a step.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/shard_group.jl
using Gangway, Random

const FEATURES, ROWS, MICROBATCHES = 10, 32, 2
const TRUTH = Float32.(0:FEATURES-1) ./ 10

# The caller's own model: gradients of the squared error's sum, and that sum.
function compute(w, b, x)
    error = vec(w' * x) .+ b[1] .- (vec(TRUTH' * x) .+ 0.5f0)
    return (dw = x * error, db = [sum(error)], loss = sum(abs2, error) / 2)
end

Gangway.init() do gangs
    group = ShardGroup(gangs, "line", "w" => (FEATURES,), "b" => (1,); seed = 1)
    opt = AdamW(Model(group); lr = 0.05)
    root = gangs.root
    items = ROWS * MICROBATCHES * length(root) # of a step, over all ranks
    rng = MersenneTwister(11 + Gangway.rank(root))
    mean = Inf
    for step in 1:200
        loss = 0.0
        for _ in 1:MICROBATCHES
            x = rand(rng, Float32, FEATURES, ROWS) .- 0.5f0
            unshard!(group) do w, b # whole values, lent for the block
                found = compute(w, b, x)
                add_gradients!(group, found.dw, found.db)
                loss += found.loss
            end
        end
        reduce!(group)
        step!(opt; scale = 1 / items, max_grad_norm = 1) # the gradients are of sums
        mean = Gangway.allsum(root, loss) / items
        step % 50 == 0 && Gangway.rank(root) == 0 && println("step $step  loss ", mean)
    end
    @assert mean < 0.001
end
