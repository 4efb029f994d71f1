# The checkpoints of a run: everything that changes the next step.

@handle Checkpoints gw_checkpoints "The folder of a run."

@doc """
The folder of a run, which one job holds at a time: `Checkpoints(folder, gangs = nothing; keep = 3, every = 0, synchronous = false,
max_file_bytes, model_dtype, job, timeout_ms)`. `due(run, step)`, `save(run, model, optimizer; step)`, `wait(run)`,
`restore!(run, model, optimizer)`. Its release waits until a save in progress has ended. Collective.

- `keep`: the newest complete ones stay; 0: all. `every`: what `due` answers.
- `synchronous`: `save` returns after the commit, and needs no memory for a copy.
- `max_file_bytes`: of a safetensors file; 0: no limit. `model_dtype`: of the model's files; left out: the masters'.
""" Checkpoints
function Checkpoints(folder, gangs = nothing; keywords...)
    made = options(LibGangway.gw_checkpoints_options, "Checkpoints", keywords)
    text = c_text("Checkpoints", "folder", folder)
    return take(Checkpoints, out -> LibGangway.gw_checkpoints_create(maybe(gangs), text, made, out))
end

"Whether a checkpoint is due at this step: a multiple of `every`."
function due(run::Checkpoints, step)
    out = Ref{Int32}(0)
    check(LibGangway.gw_checkpoints_due(run, step, out))
    return out[] != 0
end

hidden(::Type{LibGangway.gw_checkpoint_part}) = (:model, :optimizer)
hidden(::Type{LibGangway.gw_checkpoint_state}) = (:texts, :text_count, :user, :user_size)

# Calls with the parts, which are the pairs name => (model, optimizer or nothing).
function with_parts(use, call, parts, carry_from = nothing)
    made = map(collect(pairs(parts))) do (name, (model, optimizer))
        part = options(LibGangway.gw_checkpoint_part, call, (; name = string(name)))
        carry_from === nothing || set_fields!(part, call, (; carry_from))
        set_field!(part, :model, Base.unsafe_convert(Ptr{LibGangway.gw_module}, model))
        optimizer === nothing ||
            set_field!(part, :optimizer, Base.unsafe_convert(Ptr{LibGangway.gw_optimizer}, optimizer))
        part
    end
    raw = [part[] for part in made]
    return GC.@preserve parts made raw use(raw, length(raw))
end

named(model::Model, optimizer) = Dict("" => (model, optimizer))
named(models::AbstractDict, optimizers) =
    Dict(string(name) => (model, optimizers === nothing ? nothing : get(optimizers, name, nothing)) for (name, model) in models)

"""
    save(run, model, optimizer = nothing; step, tokens = 0, texts = Dict(), user = UInt8[], carry_from)

Saves a model with its optimizer, or several of each by name (`Dict("" => model, "teacher" => other)`). Returns when the values are
copied; a thread writes them beside training. First waits for the save before, and throws its error. `step`: names the
checkpoint; left out: the optimizer's steps. `texts`: by name, equal on every rank; `user`: rank 0's bytes. `carry_from`: a folder
whose tokenizer and generation files are copied along. Collective.
"""
function save(run::Checkpoints, model::Union{Model,AbstractDict}, optimizer = nothing; step = nothing, tokens = 0,
              texts = Dict{String,String}(), user = UInt8[], carry_from = nothing)
    at = step !== nothing ? step : optimizer isa Optimizer ? steps(optimizer) : 0
    state = options(LibGangway.gw_checkpoint_state, "save", (; step = at, tokens))
    made = [options(LibGangway.gw_checkpoint_text, "save", (; name = string(name), text = value)) for (name, value) in pairs(texts)]
    raw, bytes = [text[] for text in made], collect(UInt8, user)
    GC.@preserve made raw bytes begin
        set_field!(state, :texts, pointer(raw))
        set_field!(state, :text_count, length(raw))
        set_field!(state, :user, Ptr{Cvoid}(pointer(bytes)))
        set_field!(state, :user_size, length(bytes))
        with_parts("save", named(model, optimizer), carry_from) do parts, count
            @waits LibGangway.gw_checkpoints_save(run, parts, count, state)
        end
    end
    return nothing
end

"Waits until the last save has ended, and throws its error, once. Collective."
Base.wait(run::Checkpoints) = (@waits LibGangway.gw_checkpoints_wait(run); nothing)

"""
    restore!(run, model, optimizer = nothing; step = -1, no_verify = false, partial = false)

Restores the newest complete checkpoint, or that of a step, on any mesh. Returns `(step, tokens, user, notes)`, or nothing where
there is none. Every hash is verified before a value changes, unless `no_verify`. `partial`: what has no place or no value is left
out, and listed in `notes`, like hyperparameters that differ. Collective.
"""
function restore!(run::Checkpoints, model::Union{Model,AbstractDict}, optimizer = nothing; keywords...)
    made = options(LibGangway.gw_restore_options, "restore!", keywords)
    step, tokens = Ref{Int64}(0), Ref{Int64}(0)
    with_parts("restore!", named(model, optimizer)) do parts, count
        @waits LibGangway.gw_checkpoints_restore(run, parts, count, made, step, tokens)
    end
    step[] < 0 && return nothing
    size = Ref{Csize_t}(0)
    check(LibGangway.gw_checkpoints_user(run, C_NULL, 0, size))
    user = Vector{UInt8}(undef, size[])
    isempty(user) || check(LibGangway.gw_checkpoints_user(run, user, length(user), size))
    lines = whole_text((text, capacity, len) -> LibGangway.gw_checkpoints_notes(run, text, capacity, len))
    return (step = Int(step[]), tokens = Int(tokens[]), user = user, notes = split(lines, '\n'; keepempty = false))
end

"A text of the checkpoint that was restored last."
function text(run::Checkpoints, name)
    wanted = c_text("text", "name", name)
    return whole_text((text, capacity, len) -> LibGangway.gw_checkpoints_text(run, wanted, text, capacity, len))
end

"Host memory that is kept for copies."
function buffer_bytes(run::Checkpoints)
    out = Ref{UInt64}(0)
    check(LibGangway.gw_checkpoints_buffer_bytes(run, out))
    return Int(out[])
end

"States from a safetensors file: tensors STATE.PARAMETER such as exp_avg.model.norm.weight, and `step`. Collective."
function load!(optimizer::Optimizer, path)
    @waits LibGangway.gw_optimizer_load(optimizer, c_text("load!", "path", path))
    return optimizer
end
