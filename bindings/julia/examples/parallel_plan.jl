# Tensor parallelism of a model of your own: a plan says which modules are split over the ranks, and how. The
# model learns the same on any number of ranks.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/parallel_plan.jl
using Gangway, Printf

const ROWS, INPUTS = 16, 8
# Columns, then rows, so that one sum at the end of the MLP brings the ranks together.
const MLP_PLAN = "1.gate_proj -> colwise\n1.up_proj -> colwise\n1.down_proj -> rowwise"

function make_model(gangs)
    model = Sequential(Linear(INPUTS, 32), Mlp(32, 64), Linear(32, 1)) # named "0", "1" and "2"
    rows = [(pattern = "0", style = :colwise, output = :replicate), # outputs are gathered
            (pattern = "2", style = :rowwise, input = :replicate)]  # each takes its part
    tensor_parallel!(model, gangs; plan = MLP_PLAN, rows)
    fully_shard!(model, "", gangs) # what tp has left of each parameter
    return materialize!(model, gangs; seed = 1, master_dtype = Float64)
end

Gangway.init(; dp_shard = 1, tp = -1) do gangs # all ranks are those of tp
    model = make_model(gangs)
    talks = Gangway.rank(gangs.root) == 0
    for info in map(Gangway.describe, parameters(model))
        talks && @printf("%-18s %s\n", info.name, info.layout)
    end
    opt = AdamW(model; lr = 0.01)
    frame = Gangway.Frame(model)
    for step in 1:100
        x = reshape([(step * 131 + i * i) * 7919 % 2003 / 1000 - 1 for i in 0:ROWS*INPUTS-1], INPUTS, 1, ROWS)
        y, = Gangway.forward(model, x; frame) # of rows of one token
        differences = [y[1, 1, r] - (x[1, 1, r] - x[2, 1, r]) for r in 1:ROWS] # from x0 - x1
        loss = foldl(+, differences .^ 2 ./ ROWS)
        Gangway.backward(model, frame, reshape(2 .* differences ./ ROWS, 1, 1, ROWS))
        step!(opt)
        talks && (step == 1 || step % 25 == 0) && @printf("step %d  loss %.9f\n", step, loss)
    end
end
