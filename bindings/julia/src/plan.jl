# What a training would need, before it runs.

export plan_memory

hidden(::Type{LibGangway.gw_plan_options}) = (:decoder, :mesh, :parallel, :lora)

"""
    plan_memory(decoder; mesh = (;), parallel = (;), ranks = 1, microbatches = 0, rows = 1, sequence = 0, moment_dtype = Float32,
                one_host = false)

The rank that uses the most memory in a training with AdamW, and its bytes by use: `(rank, memory)`. They are exact: the library
builds the model, splits it and trains it on a device without memory, by the code of a real run. That takes some seconds for large
models. Local.

`decoder`: the keywords of [`Decoder`](@ref), such as `decoder_options(folder)`. `mesh`: those of `Gangway.mesh`; left out: all ranks
are `dp_shard`. `parallel`: those of `parallelize!`. `microbatches`: of a step; 0: one, and twice pp over pp. `rows`: of a
microbatch of a rank. `sequence`: tokens of a row; 0: the decoder's `max_positions`. `moment_dtype`: of AdamW's averages.
`one_host`: the ranks are processes of one CPU host, and share gathered weights.
"""
function plan_memory(decoder::NamedTuple; mesh = NamedTuple(), parallel = NamedTuple(), keywords...)
    made = options(LibGangway.gw_plan_options, "plan_memory", keywords)
    model = options(LibGangway.gw_decoder_options, "plan_memory: decoder", NamedTuple())
    family = c_text("plan_memory: decoder", "family", get(decoder, :family, "llama"))
    check(LibGangway.gw_decoder_options_from_family(family, model))
    set_fields!(model, "plan_memory: decoder", decoder)
    for (name, nested) in ((:decoder, model), (:mesh, options(LibGangway.gw_mesh_options, "plan_memory: mesh", mesh)),
                           (:parallel, parallel_options("plan_memory: parallel", pairs(parallel))))
        push!(made.roots, nested)
        set_field!(made, name, pointer_to(nested))
    end
    rank = Ref{Int32}(0)
    memory = facts(LibGangway.gw_memory_use, out -> check(LibGangway.gw_plan_memory(made, out, rank)))
    return (rank = Int(rank[]), memory = memory)
end
