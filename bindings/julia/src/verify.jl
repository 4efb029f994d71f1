# A training step over a mesh against the same step on one rank.

export verify, verify_groups

hidden(::Type{LibGangway.gw_verify_options}) = (:parallel,)

"""
    verify(build, inputs, targets = nothing, gangs = nothing; microbatches = 1, tolerance = 1e-8, weight, shift_labels, parallel...)

Trains one step of the model that `build()` describes over the gangs and on a single rank, both in Float64, and compares losses,
every gradient and the update: a `Mismatch` names the first parameter whose gradient differs, in the order of backward, and by
how much. Every rank computes the whole model alone, too, so give a small configuration of a large one. The batch is as in
[`train_step!`](@ref), further keywords are those of [`parallelize!`](@ref). Collective.
"""
function verify(build, inputs, targets = nothing, gangs = nothing; microbatches = 1, tolerance = 1e-8, weight = -1,
                shift_labels = false, parallel...)
    batch = batch_of("verify", inputs, targets, (; weight, shift_labels))
    made = options(LibGangway.gw_verify_options, "verify", (; microbatches, tolerance))
    over = parallel_options("verify", parallel)
    user = Pin(build, 0)
    return GC.@preserve batch over user begin
        set_field!(made, :parallel, pointer_to(over))
        facts(LibGangway.gw_verify_result,
              out -> (@waits LibGangway.gw_verify(maybe(gangs), BUILD_MODEL[], address(user), batch, made, out)))
    end
end

build_model(user::Ptr{Cvoid}, out::Ptr{Ptr{LibGangway.gw_module}}) = guarded() do
    model = pinned(user)()::Model
    GC.@preserve model unsafe_store!(out, LibGangway.gw_module_retain(model))
end

"""
    verify_groups(step, gangs = nothing; tolerance = 1e-8)

The same for a program that computes by itself with shard groups: calls `step(gangs)` with the gangs, and once more on every
rank with gangs of that rank alone. It makes its groups in Float64 over the gangs that it gets, with equal first values each
time, takes the rows of the batch that `data_shard(gangs)` says, computes loss and gradients and reduces them; it returns the
mean loss of the whole batch and a [`Model`](@ref) of its groups, and does not update them. Collective.
"""
function verify_groups(step, gangs = nothing; tolerance = 1e-8)
    made = options(LibGangway.gw_verify_options, "verify_groups", (; tolerance))
    user = Pin(step, 0)
    return GC.@preserve user begin
        facts(LibGangway.gw_verify_result,
              out -> (@waits LibGangway.gw_verify_groups(maybe(gangs), GROUPS_STEP[], address(user), made, out)))
    end
end

groups_step(user::Ptr{Cvoid}, gangs::Ptr{LibGangway.gw_gangs}, loss::Ptr{Float64}, out::Ptr{Ptr{LibGangway.gw_module}}) =
    guarded() do
        over = Gangs(LibGangway.gw_gangs_retain(gangs))
        found, model = pinned(user)(over)::Tuple{Real,Model}
        unsafe_store!(loss, Float64(found))
        GC.@preserve model unsafe_store!(out, LibGangway.gw_module_retain(model))
    end

const BUILD_MODEL, GROUPS_STEP = Ref(C_NULL), Ref(C_NULL)
function make_verify_callback()
    BUILD_MODEL[] = @cfunction(build_model, Int32, (Ptr{Cvoid}, Ptr{Ptr{LibGangway.gw_module}}))
    GROUPS_STEP[] = @cfunction(groups_step, Int32, (Ptr{Cvoid}, Ptr{LibGangway.gw_gangs}, Ptr{Float64},
                                                    Ptr{Ptr{LibGangway.gw_module}}))
    return nothing
end
