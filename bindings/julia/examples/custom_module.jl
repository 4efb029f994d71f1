# Own compute as a module: a regression, written in Julia, sharded and trained like a built-in layer.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/custom_module.jl
using Gangway, Printf

const FEATURES, ROWS = 8, 64
const TRUTH = (0:FEATURES-1) ./ 8

# Of y = w' x for each column of x.
errors(w, x) = x' * (w .- TRUTH)

# x (FEATURES, ROWS), data without gradient -> loss sum, weight; f32 alone, as `accepts` could say.
function forward(call)
    call.outputs[1][1] = sum(abs2, errors(call.parameters[1], call.inputs[1])) / 2
    call.outputs[2][1] = ROWS
end

function backward(call)
    x, dw, dx = call.inputs[1], call.parameter_grads[1], call.input_grads[1]
    dw .+= Float32.(call.loss_scale .* (x * errors(call.parameters[1], x)))
    dx === nothing || fill!(dx, 0)
end

Gangway.init() do gangs
    model = Custom(; name = "regression", outputs = 2, parameters = ["w" => (FEATURES,)],
                   forward = forward, backward_input = backward)
    parallelize!(model, gangs)
    opt = AdamW(model; lr = 0.02)
    shard, shards = Gangway.data_shard(gangs)
    loss = Inf
    for step in 1:100
        n = ROWS * (step * shards + shard) # the first row: made up, the same in every language
        x = [Float32(mod((n + r) * i * 97, 1021) - 510) / 1024 for i in 1:FEATURES, r in 0:ROWS-1]
        loss = train_step!(model, opt, x; weight = ROWS).loss
        shard == 0 && step % 20 == 0 && @printf("step %d  loss %.6f\n", step, loss)
    end
    @assert loss < 0.01
end
