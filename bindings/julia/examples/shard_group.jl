# A program with its own compute and its own loop; gangway only shards: y = w' x, two microbatches a step.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/shard_group.jl
using Gangway, Random

const FEATURES, ROWS, MICROBATCHES = 10, 32, 2
const TRUTH = 0.1f0 .* (0:FEATURES-1)

# Half the sum of squared errors, and its gradient.
function own_compute(w, x)
    error = x' * (w .- TRUTH)
    return sum(abs2, error) / 2, x * error
end

Gangway.init() do gangs
    group = ShardGroup(gangs, "line", "w" => (FEATURES,); seed = 1)
    opt = AdamW(Model(group); lr = 0.05)
    root = gangs.root
    items = ROWS * MICROBATCHES * length(root) # of a step, over all ranks
    rng = MersenneTwister(11 + Gangway.rank(root))
    mean = Inf
    for step in 1:200
        sum_of_losses = 0.0
        for _ in 1:MICROBATCHES
            x = rand(rng, Float32, FEATURES, ROWS) .- 0.5f0
            unshard!(group) do w # whole values, lent for the block
                loss, dw = own_compute(w, x)
                add_gradients!(group, dw)
                sum_of_losses += loss
            end
        end
        reduce!(group)
        step!(opt; scale = 1 / items, max_grad_norm = 1) # the gradients are of sums
        mean = Gangway.allsum(root, sum_of_losses) / items
        step % 50 == 0 && Gangway.rank(root) == 0 && println("step $step  loss ", mean)
    end
    @assert mean < 0.001
end
