# FP8: linear layers whose products take 8-bit codes.

"""
    fp8_apply!(model; patterns = nothing, scaling = :tensor, history = 16)

Makes linear layers compute in FP8; before [`parallelize!`](@ref). `patterns`: of module paths ("model.layers.*.mlp.*"), as one
text separated by commas or as a list of texts; nothing: every linear layer but the head. `scaling`: `:tensor`, `:delayed` (from
the largest magnitude of the last `history` steps) or `:row`. Scales of whole tensors depend on the mesh. A GPU takes sizes that
are multiples of 16.
"""
function fp8_apply!(model::Model; patterns = nothing, keywords...)
    text = patterns === nothing || patterns isa AbstractString ? patterns : join(patterns, ", ")
    made = options(LibGangway.gw_fp8_options, "fp8_apply!", (; patterns = text, keywords...))
    check(LibGangway.gw_fp8_apply(model, made))
    return model
end
