# A pipeline of stages that the program computes by itself: each rank has one layer, a closure with its pullback as Flux has
# them; together they learn to halve their input.
#   gangrun -n 4 julia --project=bindings/julia bindings/julia/examples/pipeline_custom_stage.jl
using Gangway, LinearAlgebra, Printf

const WIDTH, ROWS, MICROBATCHES = 8, 16, 8

# y = w x, and the two halves of its pullback: to the input, and to the weights, where it adds.
dense(w, dw) = x -> (w * x, dy -> w' * dy, dy -> dw .+= dy * x')

Gangway.init() do gangs
    gang, steps = gangs.root, 80
    pipe = Pipeline(gang; schedule = "zb-h1", microbatches = MICROBATCHES)
    w, dw = Matrix{Float32}(I, WIDTH, WIDTH), zeros(Float32, WIDTH, WIDTH)
    layer = dense(w, dw)
    made = [Float32(mod(97i, 1021) - 510) / 512 for i in 0:WIDTH*ROWS*MICROBATCHES-1] # the same in every language
    data = reshape(made, WIDTH, ROWS, MICROBATCHES)
    backs, dys = Vector{Any}(undef, MICROBATCHES), Vector{Any}(undef, MICROBATCHES)
    loss, items = Inf, ROWS * MICROBATCHES
    for step in 1:steps
        own = 0.0
        pass!(pipe) do action
            m = action.microbatch + 1 # they count from 0
            if action.kind === :forward
                y, input_half, weight_half = layer(action.first_stage ? data[:, :, m] : action.inputs[1])
                backs[m] = (input_half, weight_half) # they hold the input, which is lent until the weight half is done
                action.last_stage || return y
                dys[m] = y .- data[:, :, m] ./ 2
                own += sum(abs2, dys[m]) / 2
                return nothing
            end
            input_half, weight_half = backs[m]
            action.kind === :weight_gradient && (weight_half(dys[m]); return nothing)
            action.last_stage || (dys[m] = action.inputs[1])
            action.kind === :backward && weight_half(dys[m])
            return action.first_stage ? nothing : input_half(dys[m])
        end
        w .-= 0.3f0 .* dw ./ items
        fill!(dw, 0)
        loss = Gangway.allsum(gang, own / items)
        step % 20 == 0 && Gangway.rank(gang) == 0 && @printf("step %d  loss %.6f\n", step, loss)
    end
    Gangway.release!(pipe)
    @assert loss < 0.001
end
