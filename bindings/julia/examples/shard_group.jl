# A program with its own compute and its own loop; gangway only shards: y = w' x, two microbatches a step.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/shard_group.jl
using Gangway, Printf

const FEATURES, ROWS, MICROBATCHES = 10, 32, 2
const TRUTH = (0:FEATURES-1) ./ 8

# Half the sum of squared errors, and its gradient, over made-up rows from the n-th on, the same in every language.
function own_compute(w, n)
    x = [(mod((n + r) * i * 97, 1021) - 510) / 1024 for i in 1:FEATURES, r in 0:ROWS-1]
    error = x' * (w .- TRUTH)
    return sum(abs2, error) / 2, Float32.(x * error)
end

Gangway.init() do gangs
    group = ShardGroup(gangs, "line", "w" => (FEATURES,); seed = 1)
    opt = AdamW(Model(group); lr = 0.02)
    root = gangs.root
    items = ROWS * MICROBATCHES * length(root) # of a step, over all ranks
    mean = Inf
    for step in 1:200
        sum_of_losses = 0.0
        for m in 0:MICROBATCHES-1
            n = ROWS * ((step * MICROBATCHES + m) * length(root) + Gangway.rank(root))
            unshard!(group) do w # whole values, lent for the block
                loss, dw = own_compute(w, n)
                add_gradients!(group, dw)
                sum_of_losses += loss
            end
        end
        reduce!(group)
        step!(opt; scale = 1 / items, max_grad_norm = 1) # the gradients are of sums
        mean = Gangway.allsum(root, sum_of_losses) / items
        step % 50 == 0 && Gangway.rank(root) == 0 && @printf("step %d  loss %.6f\n", step, mean)
    end
    @assert mean < 0.001
end
