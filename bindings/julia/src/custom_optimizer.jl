# Optimizers by name; own optimizers and schedules: Julia functions that the library calls.

export Optimizer, CustomOptimizer, set_schedule!

"""
    Optimizer(kind, model; lr = 1e-3, ...)

An optimizer by the name of its kind, for programs that read it from a file: `Optimizer("adamw", model; lr = 1e-3)`. A kind is the
name of its function in lower case; the keywords are those of that function without `rules`. A refusal lists the known kinds or
keywords.
"""
function Optimizer(kind::AbstractString, model::Model; keywords...)
    names = String[string(name) for name in keys(keywords)]
    texts = String[c_text("Optimizer", name, option_text(value)) for (name, value) in pairs(keywords)]
    GC.@preserve names texts begin
        raw_names = Ptr{Cchar}[pointer(name) for name in names]
        raw_texts = Ptr{Cchar}[pointer(text) for text in texts]
        wanted = c_text("Optimizer", "kind", kind)
        return take(Optimizer, out -> LibGangway.gw_optimizer_create(model, wanted, raw_names, raw_texts, length(names), out))
    end
end

# An option as the library reads it from a text: 0.1, true, cosine, f32.
option_text(value) = string(value)
option_text(value::Type) = unsafe_string(LibGangway.gw_dtype_name(dtype(value)))

struct StepFunction
    step::Any
    states::Vector{Symbol}
end

hidden(::Type{LibGangway.gw_custom_optimizer_options}) = (:states, :state_count, :step, :user, :free_user, :rule_count)

"""
    CustomOptimizer(step, model; states = (), name = "custom", lr = 1e-3, ...)

An optimizer whose step is a function, called for each parameter that has rows on this rank: `step(call)`. `call` has `name`
(of the parameter), `value`, `gradient` (unscaled and clipped), `states` (by name; zero at first), `lr` (with schedule and
rules), `weight_decay` and `step` (from 1). The function writes `value` and the states in place; the arrays are lent for the
call. `states`: names of what it keeps for each parameter, in the parameter's shape. The other keywords are those of every
[`Optimizer`](@ref).
"""
function CustomOptimizer(step, model::Model; states = (), keywords...)
    made = options(LibGangway.gw_custom_optimizer_options, "CustomOptimizer", keywords)
    names = String[c_text("CustomOptimizer", "states", string(state)) for state in states]
    set_field!(made, :step, OPTIMIZER_STEP[])
    set_field!(made, :free_user, FREE_PIN[])
    GC.@preserve names begin
        raw_names = Ptr{Cchar}[pointer(name) for name in names]
        set_field!(made, :states, pointer(raw_names))
        set_field!(made, :state_count, length(raw_names))
        # Nothing may throw from here to the call: the library frees the pin, also when it refuses.
        set_field!(made, :user, address(pin(StepFunction(step, Symbol.(names)))))
        return GC.@preserve raw_names take(Optimizer, out -> LibGangway.gw_custom_optimizer_create(model, made, out))
    end
end

function optimizer_step(user::Ptr{Cvoid}, ptr::Ptr{LibGangway.gw_optimizer_call})
    lent = Any[]
    lend_one(view) = (push!(lent, borrow(view, nothing, false)); last(lent))
    return guarded(() -> foreach(give_back!, lent)) do
        f, c = pinned(user)::StepFunction, unsafe_load(ptr)
        states = Tuple(lend_one(unsafe_load(c.states, i)) for i in 1:c.state_count)
        f.step((name = unsafe_string(c.name), value = lend_one(unsafe_load(c.value)), gradient = lend_one(unsafe_load(c.gradient)),
                states = NamedTuple{Tuple(f.states)}(states), lr = c.lr, weight_decay = c.weight_decay, step = Int(c.step)))
    end
end

"Takes `factor(step)` in the place of schedule and warm-up: what the base rate is multiplied by; `step` counts from 1. Every rank
must give equal factors."
set_schedule!(factor, optimizer::Optimizer) =
    check(LibGangway.gw_optimizer_set_schedule(optimizer, SCHEDULE_FACTOR[], address(pin(factor)), FREE_PIN[]))

schedule_factor(user::Ptr{Cvoid}, step::Int64, out::Ptr{Cdouble}) = guarded() do
    unsafe_store!(out, Cdouble(pinned(user)(Int(step))))
end

const OPTIMIZER_STEP, SCHEDULE_FACTOR = Ref(C_NULL), Ref(C_NULL)
function make_optimizer_callbacks()
    OPTIMIZER_STEP[] = @cfunction(optimizer_step, Int32, (Ptr{Cvoid}, Ptr{LibGangway.gw_optimizer_call}))
    SCHEDULE_FACTOR[] = @cfunction(schedule_factor, Int32, (Ptr{Cvoid}, Int64, Ptr{Cdouble}))
    return nothing
end
