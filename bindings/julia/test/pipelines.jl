# Pipelines of own stages over two and four ranks: started by gangrun.
using Gangway, Test
using Gangway: rank

include("facts.jl")

const GANG = start(; timeout_ms = 600_000).root
const ME = Gangway.rank(GANG)
const WIDTH, MICROBATCHES = 3, 4
total(gang, x) = Gangway.allsum(gang, x)

weight(stage) = [mod(31stage + 17i + 5j, 13) / 8 - 0.7 for i in 1:WIDTH, j in 1:WIDTH]

# Microbatches of 2, 3, ... columns, and a number for each that only the last stage reads.
data(m) = ([mod(97i + 13j + 7m, 1021) / 500 - 1 for i in 1:WIDTH, j in 1:m+2], Int64[mod(j, 5) - 2 for j in 1:m+2])

# A layer as Flux has it: y, and its pullback, in two halves.
function layer(w, dw)
    return function (x)
        y = tanh.(w * x)
        inner(dy) = dy .* (1 .- y .^ 2)
        return y, dy -> w' * inner(dy), dy -> dw .+= inner(dy) * x'
    end
end

mutable struct Stages
    w::Dict{Int,Matrix{Float64}}
    dw::Dict{Int,Matrix{Float64}}
    backs::Dict{Tuple{Int,Int},Any}
    last::Int
    loss::Float64
end
Stages(stages, count) =
    Stages(Dict(s => weight(s) for s in stages), Dict(s => zeros(WIDTH, WIDTH) for s in stages), Dict(), count - 1, 0.0)

# The loss is half the sum of numbers * y^2; its gradient is kept for the last stage's backward.
function forward!(own, s, m, x, numbers)
    y, input_half, weight_half = layer(own.w[s], own.dw[s])(x)
    seed = s == own.last ? numbers' .* y : nothing
    own.backs[s, m] = (input_half, weight_half, Ref{Any}(seed))
    seed === nothing || (own.loss += sum(seed .* y) / 2)
    return y
end

function input_gradient!(own, s, m, dy)
    input_half, _, kept = own.backs[s, m]
    dy === nothing || (kept[] = dy)
    return input_half(kept[])
end

function weight_gradient!(own, s, m)
    _, weight_half, dy = pop!(own.backs, (s, m))
    weight_half(dy[])
    return nothing
end

function compute!(own, action)
    s, m, kind = action.stage, action.microbatch, action.kind
    if kind === :forward
        x, numbers = action.first_stage ? data(m) : action.inputs
        y = forward!(own, s, m, x, numbers)
        return action.last_stage ? nothing : (y, numbers)
    end
    dx = nothing
    if kind in (:backward, :input_gradient)
        action.last_stage || @assert action.inputs[2] === nothing # numbers have no gradient
        dx = input_gradient!(own, s, m, action.last_stage ? nothing : action.inputs[1])
    end
    kind in (:backward, :weight_gradient) && weight_gradient!(own, s, m)
    return dx === nothing || action.first_stage ? nothing : (dx, nothing)
end

# All stages on one rank, microbatch after microbatch.
function alone(count)
    own = Stages(0:count-1, count)
    for m in 0:MICROBATCHES-1
        x, numbers = data(m)
        for s in 0:count-1
            x = forward!(own, s, m, x, numbers)
        end
        dy = nothing
        for s in count-1:-1:0
            dy = input_gradient!(own, s, m, dy)
            weight_gradient!(own, s, m)
        end
    end
    return own
end

function equals_one_rank(gang, schedule, per_rank)
    pipe = Pipeline(gang; schedule = schedule, microbatches = MICROBATCHES)
    whole, own = alone(pipe.stages), Stages(pipe.local_stages, pipe.stages)
    @test pipe.stages == per_rank * length(gang) && length(pipe.local_stages) == per_rank
    lent = Any[]
    pass!(pipe) do action
        append!(lent, filter(x -> x !== nothing, action.inputs))
        compute!(own, action)
    end
    @test all(isempty, lent) && isempty(pipe.lent) # the loans have ended
    @test total(gang, own.loss) ≈ whole.loss rtol = 1e-10
    @test all(s -> isapprox(own.dw[s], whole.dw[s]; rtol = 1e-10), pipe.local_stages)
    Gangway.training!(pipe, false)
    kinds, again = Symbol[], Stages(pipe.local_stages, pipe.stages)
    pass!(action -> (push!(kinds, action.kind); compute!(again, action)), pipe)
    @test kinds == fill(:forward, MICROBATCHES * per_rank)
    @test total(gang, again.loss) ≈ whole.loss rtol = 1e-10
    Gangway.release!(pipe)
    @test string(pipe) == "released Pipeline" && isempty(pipe.lent)
end

fact("a pass equals one rank") do
    pair = Gangway.split_gang(GANG, ME ÷ 2)
    for (gang, schedule, per_rank) in ((pair, "1f1b", 1), (GANG, "1f1b", 1), (pair, "interleaved-1f1b", 2), (GANG, "zb-h1", 1),
                                       (pair, "zbv", 2), (GANG, "zbv", 2))
        equals_one_rank(gang, schedule, per_rank)
    end
end

fact("actions and pipelines print what they are") do
    pipe = Pipeline(GANG; microbatches = MICROBATCHES, shard_actions = 1)
    @test string(pipe) == "Pipeline(1f1b, 4 stages, 4 microbatches; rank $ME has $ME)"
    @test Gangway.stage_rank(pipe, 3) == 3
    @test refused(() -> Gangway.stage_rank(pipe, 4), "stage is 4, outside [0, 4)"; kind = Gangway.InvalidArgument)
    texts, own = String[], Stages(pipe.local_stages, pipe.stages)
    pass!(action -> (push!(texts, string(action)); action.microbatch === nothing ? nothing : compute!(own, action)), pipe)
    @test any(text -> startswith(text, "Action(forward, stage $ME, microbatch 0$(ME == 0 ? ")" : ", inputs 3×2")"), texts)
    @test "Action(unshard, stage $ME)" in texts && "Action(reduce_grad, stage $ME)" in texts
end

fact("refusals are exceptions of every rank, and the action is still to be done") do
    @test refused(() -> Pipeline(GANG; microbatches = 2, schedule = "fast"), "\"fast\" is unknown"; kind = Gangway.InvalidArgument)
    @test refused(() -> Pipeline(GANG), "microbatches is 0"; kind = Gangway.InvalidArgument)
    @test refused(() -> Pipeline(GANG; microbatches = 2, colour = 1), "unknown keyword colour")
    @test thrown(() -> Pipeline(GANG; microbatches = 2 + ME)) isa Gangway.Mismatch
    pipe = Pipeline(GANG; microbatches = 1)
    @test refused(() -> done!(pipe), "next comes before done"; kind = Gangway.InvalidState)
    y = ones(Float32, 2, 3)
    while (action = next!(pipe)) !== nothing
        @test refused(() -> next!(pipe), "done comes before next"; kind = Gangway.InvalidState)
        @test refused(() -> Gangway.training!(pipe, false), "under way"; kind = Gangway.InvalidState)
        if action.kind === :forward && !action.last_stage
            @test refused(() -> done!(pipe), "at least one output"; kind = Gangway.InvalidArgument)
            @test refused(() -> done!(pipe, y, nothing), "output 1 is absent"; kind = Gangway.InvalidArgument)
            @test refused(() -> done!(pipe, "y"), "results is a String, not an array")
            done!(pipe, y)
        elseif action.kind === :backward && !action.first_stage
            @test refused(() -> done!(pipe, ones(Float32, 3, 2)), "input 0", "[2, 3]", "[3, 2]"; kind = Gangway.InvalidArgument)
            done!(pipe, y)
        else
            done!(pipe)
        end
    end
end

fact("a rank that leaves ends the pass on all ranks") do
    pipe = Pipeline(GANG; microbatches = 2)
    if ME == 0
        @test next!(pipe).kind === :forward
    else
        @test refused(() -> next!(pipe), "in the middle of a pass"; kind = Gangway.Aborted)
    end
    Gangway.release!(pipe)
    @test total(GANG, 1) == 4 # the caller's gang works on
end

fact("a rank that dies in a pass is lost, and named") do
    pipe, y = Pipeline(GANG; microbatches = 2), ones(3)
    if ME == 3
        next!(pipe)
        report_counts()
        ccall(:_exit, Cvoid, (Cint,), 0) # with the first input at hand; exit() would release the pipeline
    end
    e = thrown(() -> pass!(action -> action.kind === :forward || !action.first_stage ? y : nothing, pipe))
    @test e isa Gangway.PeerLost && e.peer == 3
end

exit(report_counts() ? 0 : 1)
