# Pipelines of stages that the caller computes: each rank asks for an action, computes it, and ends it with
# its results.

@handle PipelineHandle gw_pipeline "The library's side of a pipeline."

"""
What to compute next. Fields: `kind`, `stage` and `microbatch` (from 0, as schedules name them; nothing: the kind has none),
`first_stage`, `last_stage`, `training`, `inputs`. By kind:

- `:forward`: inputs are what the stage before made, none on the first stage; the results are the stage's outputs, none on the
  last stage.
- `:backward`, `:input_gradient`: inputs are the gradients of those outputs (nothing: of no floating type), none on the last
  stage; the results are the gradients of the forward's inputs, none on the first stage.
- `:weight_gradient`, `:unshard`, `:reshard`, `:reduce_grad`: neither inputs nor results.

Inputs are lent until the end of the stage's backward of this microbatch, where it comes in two parts of its weight gradient.
"""
struct Action
    kind::Symbol
    stage::Int
    microbatch::Union{Int,Nothing}
    first_stage::Bool
    last_stage::Bool
    training::Bool
    inputs::Vector{Any}
end

const ACTION_KINDS = Dict(
    LibGangway.GW_ACTION_FORWARD => :forward, LibGangway.GW_ACTION_BACKWARD => :backward,
    LibGangway.GW_ACTION_INPUT_GRADIENT => :input_gradient, LibGangway.GW_ACTION_WEIGHT_GRADIENT => :weight_gradient,
    LibGangway.GW_ACTION_UNSHARD => :unshard, LibGangway.GW_ACTION_RESHARD => :reshard,
    LibGangway.GW_ACTION_REDUCE_GRAD => :reduce_grad)

"""
    Pipeline(gang; schedule = "1f1b", microbatches, stages_per_rank = 0, shard_actions = 0, schedule_csv)

A pipeline of stages that you compute: `pass!(pipe) do action ... end`. Rank r of the gang does row r of the schedule:
"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zbv" or "dualpipev", or a whole one as text.
`stages_per_rank` 0: the schedule's own. `shard_actions`: adds `:unshard`, `:reshard` and `:reduce_grad`, with so many stages of
a rank unsharded at a time; 0: none. Properties: `stages`, `microbatches`, `rank`, `local_stages`. Collective.

One thread at a time. All ranks pass together; `release!(pipe)` in the middle of a pass ends it on all: their calls throw
`Gangway.Aborted`. (A `Decoder` needs none of this: `parallelize!` over a mesh with pp cuts it into stages.)
"""
struct Pipeline
    handle::PipelineHandle
    schedule::String
    stages::Int
    microbatches::Int
    rank::Int
    local_stages::Vector{Int}
    lent::Dict{Tuple{Int,Int},Vector{Any}} # by stage and microbatch
    current::Base.RefValue{Union{Action,Nothing}}
end

function Pipeline(gang::Gang; keywords...)
    made = options(LibGangway.gw_pipeline_options, "Pipeline", keywords)
    handle = take(PipelineHandle, out -> LibGangway.gw_pipeline_create(gang, made, out))
    known = facts(LibGangway.gw_pipeline_info, out -> check(LibGangway.gw_pipeline_describe(handle, out)))
    own = filter(stage -> stage_rank(handle, stage) == known.rank, 0:known.stages-1)
    name = something(get(keywords, :schedule, nothing), haskey(keywords, :schedule_csv) ? "csv" : "1f1b")
    return Pipeline(handle, name, known.stages, known.microbatches, known.rank, own, Dict(), Ref{Union{Action,Nothing}}(nothing))
end

function stage_rank(handle::PipelineHandle, stage)
    rank = Ref{Int32}(0)
    check(LibGangway.gw_pipeline_stage_rank(handle, stage, rank))
    return Int(rank[])
end
"The rank of the gang that runs a stage (from 0)."
stage_rank(pipe::Pipeline, stage) = stage_rank(pipe.handle, stage)

Base.isopen(pipe::Pipeline) = isopen(pipe.handle)
function release!(pipe::Pipeline)
    foreach(place -> end_loans!(pipe, place), collect(keys(pipe.lent)))
    release!(pipe.handle)
end

"`training!(pipe, false)`: the passes that follow are forwards alone. Equal on all ranks, between two passes."
training!(pipe::Pipeline, training::Bool) =
    (check(LibGangway.gw_pipeline_set_training(pipe.handle, training)); nothing)

"Waits for the inputs of the next action; nothing: the pass is over, and the next call begins another one. Collective."
function next!(pipe::Pipeline)
    made = options(LibGangway.gw_pipeline_action, "next!", ())
    @waits LibGangway.gw_pipeline_next(pipe.handle, NO_STREAM, made)
    raw = made[]
    raw.kind == LibGangway.GW_ACTION_END && return nothing
    inputs = Any[lent_input(pipe, i, unsafe_load(raw.inputs, i)) for i in 1:raw.input_count]
    append!(get!(() -> Any[], pipe.lent, (Int(raw.stage), Int(raw.microbatch))), inputs)
    action = Action(get(ACTION_KINDS, raw.kind, :unknown), raw.stage, raw.microbatch < 0 ? nothing : Int(raw.microbatch),
                    raw.first_stage != 0, raw.last_stage != 0, raw.training != 0, inputs)
    return pipe.current[] = action
end

# Of a GPU's memory a copy.
function lent_input(pipe, i, view)
    view.shape == C_NULL && return nothing
    view.device_type == LibGangway.GW_DEVICE_CPU && return borrow(view, pipe.handle)
    return array(take(Tensor, out -> LibGangway.gw_pipeline_input(pipe.handle, i - 1, out)))
end

"""
    done!(pipe, results...)

Ends the action of the last `next!` with its results, which are copied: arrays, or nothing for the gradient of an input that
is no floating array. After a refusal the action is still to be done. Local.
"""
function done!(pipe::Pipeline, results...)
    given = views("done!", "results", results)
    GC.@preserve given @waits LibGangway.gw_pipeline_done(pipe.handle, given, length(given), NO_STREAM)
    action, pipe.current[] = pipe.current[], nothing
    place = (action.stage, something(action.microbatch, -1))
    last_of_all = action.training ? (:backward, :weight_gradient) : (:forward,)
    (action.microbatch === nothing || action.kind in last_of_all) && end_loans!(pipe, place)
    return nothing
end

function end_loans!(pipe, place)
    foreach(give_back!, pop!(pipe.lent, place, ()))
    return nothing
end

"""
    pass!(pipe) do action ... end

One pass: the block computes each [`Action`](@ref Gangway.Action) and returns its results: nothing, an array, or a tuple of
arrays and nothings. When it throws, `release!(pipe)` tells the other ranks. Collective.
"""
function pass!(f, pipe::Pipeline)
    while (action = next!(pipe)) !== nothing
        done!(pipe, arrays_of(f(action))...)
    end
    return nothing
end

Base.show(io::IO, pipe::Pipeline) = isopen(pipe) ?
    print(io, "Pipeline(", pipe.schedule, ", ", pipe.stages, " stages, ", pipe.microbatches, " microbatches; rank ", pipe.rank,
          " has ", join(pipe.local_stages, ", "), ")") :
    print(io, "released Pipeline")

function Base.show(io::IO, action::Action)
    print(io, "Action(", action.kind, ", stage ", action.stage)
    action.microbatch === nothing || print(io, ", microbatch ", action.microbatch)
    isempty(action.inputs) || print(io, ", inputs ", join((x === nothing ? "nothing" : summary(x.array) for x in action.inputs), ", "))
    print(io, ")")
end
