# Own compute as a module: a regression y = tanh(W' x + b), written in Julia, sharded and trained like a built-in layer.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/custom_module.jl
using Gangway, Random

const INPUTS, OUTPUTS, ROWS = 8, 3, 64

# inputs: x (8, rows), y (3, rows); outputs: loss sum and weight
function forward(call)
    x, y = call.inputs
    w, b = call.parameters
    t = tanh.(w' * x .+ b)
    difference = t .- y
    call.outputs[1][1] = sum(abs2, difference) / 2
    call.outputs[2][1] = size(x, 2)
    call.state = difference .* (1 .- t .^ 2) # d loss / d (W' x + b), kept for backward
end

# Data needs no gradient, but it may be asked for.
backward_input(call) = foreach(g -> g === nothing || fill!(g, 0), call.input_grads)

function backward_weight(call)
    x, (dw, db) = call.inputs[1], call.parameter_grads
    e = call.state .* Float32(call.loss_seed) # 1/N: the mean over all ranks
    dw .+= x * e'
    db .+= vec(sum(e; dims = 2))
end

Gangway.init() do gangs
    model = Custom(; name = "regression", inputs = 2, outputs = 2,
                   parameters = ["weight" => (INPUTS, OUTPUTS), Parameter("bias", (OUTPUTS,); kind = :zeros)],
                   shapes = inputs -> [(Float64, (1,)), (Float64, (1,))], forward = forward,
                   backward_input = backward_input, backward_weight = backward_weight,
                   accepts = T -> T == Float32)
    parallelize!(model, gangs)
    opt = AdamW(model; lr = 0.05)
    rng = MersenneTwister(7 + Gangway.data_shard(gangs).index)
    loss = Inf
    for step in 1:100
        x = rand(rng, Float32, INPUTS, ROWS) .- 0.5f0
        y = tanh.([1, -1, 1] .* sum(x; dims = 1))
        loss = train_step!(model, opt, (x, Float32.(y)); weight = ROWS).loss
        step % 20 == 0 && Gangway.rank(gangs.root) == 0 && println("step $step  loss ", loss)
    end
    @assert loss < 0.01
end
