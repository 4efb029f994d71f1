# Own compute as a module: a regression, written in Julia, sharded and trained like a built-in layer.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/custom_module.jl
using Gangway, Random

const FEATURES, ROWS = 8, 64
const TRUTH = 0.1f0 .* (0:FEATURES-1)

# Of y = w' x for each column of x.
errors(w, x) = x' * (w .- TRUTH)

# x (FEATURES, ROWS), data without gradient -> loss sum, weight; f32 alone, as `accepts` could say.
function forward(call)
    call.outputs[1][1] = sum(abs2, errors(call.parameters[1], call.inputs[1])) / 2
    call.outputs[2][1] = ROWS
end

function backward(call)
    x, dw, dx = call.inputs[1], call.parameter_grads[1], call.input_grads[1]
    dw .+= Float32(call.loss_seed) .* (x * errors(call.parameters[1], x))
    dx === nothing || fill!(dx, 0)
end

Gangway.init() do gangs
    model = Custom(; name = "regression", outputs = 2, parameters = ["w" => (FEATURES,)],
                   forward = forward, backward_input = backward)
    parallelize!(model, gangs)
    opt = AdamW(model; lr = 0.05)
    shard = Gangway.data_shard(gangs).index
    rng = MersenneTwister(7 + shard)
    loss = Inf
    for step in 1:100
        x = rand(rng, Float32, FEATURES, ROWS) .- 0.5f0
        loss = train_step!(model, opt, x; weight = ROWS).loss
        shard == 0 && step % 20 == 0 && println("step $step  loss ", round(loss; digits = 5))
    end
    @assert loss < 0.01
end
