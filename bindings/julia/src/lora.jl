# LoRA: low-rank adapters of linear layers, with the files of PEFT.

"""
    lora_apply!(model; patterns = nothing, rank = 8, alpha = 8, dropout = 0, seed = 0, rank_stabilized = false)

Gives linear layers adapters and freezes all other parameters; before [`parallelize!`](@ref). `patterns`: of module paths
("**.q_proj"), as one text separated by commas or as a list of texts; nothing: every linear layer but the head. `dropout`: of
an adapter's input, in training. `seed`: of the first values of A; B begins as zeros.
"""
function lora_apply!(model::Model; patterns = nothing, keywords...)
    text = patterns === nothing || patterns isa AbstractString ? patterns : join(patterns, ", ")
    made = options(LibGangway.gw_lora_options, "lora_apply!", (; patterns = text, keywords...))
    check(LibGangway.gw_lora_apply(model, made))
    return model
end
"""
    lora_apply_folder!(model, folder; seed = 0)

[`lora_apply!`](@ref) with what the adapter_config.json of a PEFT folder says; [`lora_load!`](@ref) reads the values later.
"""
function lora_apply_folder!(model::Model, folder; seed = 0)
    check(LibGangway.gw_lora_apply_folder(model, c_text("lora_apply_folder!", "folder", folder), seed))
    return model
end
"Off: the model computes without its adapters, as the reference model of DPO. Collective."
lora_enable!(model::Model, on = true) = (@waits LibGangway.gw_lora_enable(model, on); model)
"The files that PeftModel.from_pretrained reads, in one commit. `base`: name or folder of the base model; nothing: the folder from
which the model was loaded. `dtype`: the master's. Collective."
function lora_save(model::Model, folder; base = nothing, keywords...)
    made = options(LibGangway.gw_save_options, "lora_save", keywords)
    name = base === nothing ? C_NULL : c_text("lora_save", "base", base)
    @waits LibGangway.gw_lora_save(model, c_text("lora_save", "folder", folder), name, made)
    return nothing
end
"The values of the adapters, from a folder of PEFT, on any mesh. Collective."
function lora_load!(model::Model, folder)
    @waits LibGangway.gw_lora_load(model, c_text("lora_load!", "folder", folder))
    return model
end
"""
    lora_merge!(model)

Adds the adapters to the weights and switches them off, with B zero; [`save`](@ref) then writes a plain folder of Hugging Face.
Collective.
"""
lora_merge!(model::Model) = (@waits LibGangway.gw_lora_merge(model, NO_STREAM); model)
