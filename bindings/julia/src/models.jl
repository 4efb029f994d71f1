# Models and layers, parallelism, parameters, frames, files.

"""
    Decoder(; family = "llama", vocab = 256, dim = 256, layers = 4, heads = 8, kv_heads, head_dim, ffn, max_positions, eps, ...)

A decoder of a model family, which is the model_type of a Hugging Face config.json; the keywords are its fields, and the
family's own where they are left out. It describes; `parallelize!` gives it memory. Inputs: tokens (`Int64`, size
`(sequence, rows)`), and labels likewise. `Llama(; ...)`, `Mistral(; ...)`, `Qwen2(; ...)`, `Qwen3(; ...)`, `Gemma(; ...)`,
`Gemma2(; ...)`, `Gemma3(; ...)`, `Olmo2(; ...)`, `GPT2(; ...)` and `Phi3(; ...)` are decoders of those families.
`activation`, `qk_norm`, `norms` and `rope_scaling` are names: `:gelu_tanh`, `:head`, `:both`, `:yarn`. A trained one comes from
a folder by [`from_pretrained`](@ref).
"""
function Decoder(; family = "llama", call = "Decoder", keywords...)
    made = options(LibGangway.gw_decoder_options, call, (;))
    text = c_text(call, "family", family)
    check(LibGangway.gw_decoder_options_from_family(text, made))
    set_fields!(made, call, keywords)
    return take(Model, out -> LibGangway.gw_decoder_create(made, out))
end
"A [`Decoder`](@ref) of the family llama; keywords as there."
Llama(; keywords...) = Decoder(; family = "llama", call = "Llama", keywords...)
"A [`Decoder`](@ref) of the family mistral; keywords as there."
Mistral(; keywords...) = Decoder(; family = "mistral", call = "Mistral", keywords...)
"A [`Decoder`](@ref) of the family qwen2; keywords as there."
Qwen2(; keywords...) = Decoder(; family = "qwen2", call = "Qwen2", keywords...)
"A [`Decoder`](@ref) of the family qwen3; keywords as there."
Qwen3(; keywords...) = Decoder(; family = "qwen3", call = "Qwen3", keywords...)
"A [`Decoder`](@ref) of the family gemma; keywords as there."
Gemma(; keywords...) = Decoder(; family = "gemma", call = "Gemma", keywords...)
"A [`Decoder`](@ref) of the family gemma2; keywords as there."
Gemma2(; keywords...) = Decoder(; family = "gemma2", call = "Gemma2", keywords...)
"A [`Decoder`](@ref) of the family gemma3_text; keywords as there."
Gemma3(; keywords...) = Decoder(; family = "gemma3_text", call = "Gemma3", keywords...)
"A [`Decoder`](@ref) of the family olmo2; keywords as there."
Olmo2(; keywords...) = Decoder(; family = "olmo2", call = "Olmo2", keywords...)
"A [`Decoder`](@ref) of the family gpt2; keywords as there."
GPT2(; keywords...) = Decoder(; family = "gpt2", call = "GPT2", keywords...)
"A [`Decoder`](@ref) of the family phi3; keywords as there."
Phi3(; keywords...) = Decoder(; family = "phi3", call = "Phi3", keywords...)

"""
    decoder_options(folder)

The keywords that the config.json of a Hugging Face folder stands for: `Decoder(; decoder_options(folder)...)`.
"""
decoder_options(folder) = facts(LibGangway.gw_decoder_options, out -> check(
    LibGangway.gw_decoder_options_from_folder(c_text("decoder_options", "folder", folder), out)))

"""
    from_pretrained(folder, gangs = nothing; strategy = :full_shard, ...)

A Hugging Face folder of any family of this library as a model that trains and generates; so are the folders of [`save`](@ref)
and of checkpoints. The keywords are those of [`parallelize!`](@ref), which it has done. Collective.

    gangs = Gangway.init()
    model = from_pretrained("folder", gangs)
    generate(model, tokens; max_tokens = 20)

[`load!`](@ref) reads a folder into a model that is there already; `Decoder(; decoder_options(folder)...)` describes one without
its values.
"""
function from_pretrained(folder, gangs = nothing; keywords...)
    made = parallel_options("from_pretrained", keywords)
    text = c_text("from_pretrained", "folder", folder)
    return take(Model, out -> LibGangway.gw_model_from_folder(maybe(gangs), text, made, out))
end

"y = W x + b on arrays of size `(inputs, rows...)`; the weight is an array of size `(inputs, outputs)`.
With `skip_bias_add` the bias is not added, but the second output, for compute of your own that adds it."
Linear(inputs, outputs; bias = true, skip_bias_add = false) =
    take(Model, out -> LibGangway.gw_linear_create(inputs, outputs, bias && skip_bias_add ? 2 : bias, out))
"Columns of a weight of size `(dim, rows)` by `Int64` ids from 0."
Embedding(rows, dim) = take(Model, out -> LibGangway.gw_embedding_create(rows, dim, out))
"Inputs x, or x and a residual; outputs y and the sum."
RMSNorm(dim; eps = 1e-5) = take(Model, out -> LibGangway.gw_rmsnorm_create(dim, eps, out))
"Inputs x, or x and a residual; outputs y and the sum."
LayerNorm(dim; eps = 1e-5) = take(Model, out -> LibGangway.gw_layernorm_create(dim, eps, out))
"`Attention(; dim, heads, kv_heads, ...)` on arrays of size `(dim, sequence, rows)`."
Attention(; keywords...) =
    take_with(LibGangway.gw_attention_create, Model, LibGangway.gw_attention_options, "Attention", keywords)
"SwiGLU."
Mlp(dim, ffn; bias = false) = take(Model, out -> LibGangway.gw_mlp_create(dim, ffn, bias, out))
"`FeedForward(; dim, ffn, activation = :silu, bias, plain)`: down(activation(gate(x)) .* up(x)), or, with `plain`,
down(activation(up(x)))."
FeedForward(; keywords...) =
    take_with(LibGangway.gw_feed_forward_create, Model, LibGangway.gw_feed_forward_options, "FeedForward", keywords)
"A function of each number: `Activate(:gelu)`."
Activate(activation) =
    take(Model, out -> LibGangway.gw_activation_create(activation isa Symbol ? choice("Activate", :activation, activation) : activation, out))
"In training each number is zero with this probability, and else divided by 1 - probability."
Dropout(probability) = take(Model, out -> LibGangway.gw_dropout_create(probability, out))
"A pre-norm block: `Block(ffn; dim, heads, ..., eps)`."
Block(ffn; eps = 1e-5, keywords...) = take_with(Model, LibGangway.gw_attention_options, "Block", keywords) do made, out
    LibGangway.gw_block_create(made, ffn, eps, out)
end
"One after the other, named \"0\", \"1\", ..."
function Sequential(models::Model...)
    GC.@preserve models begin
        raw = Ptr{LibGangway.gw_module}[model.ptr for model in models]
        return take(Model, out -> LibGangway.gw_sequential_create(raw, length(raw), out))
    end
end

# --- parallelism ------------------------------------------------------------------------------------------------------

maybe(gangs::Gangs) = gangs
maybe(::Nothing) = C_NULL

"""
    parallelize!(model, gangs = nothing; strategy = :full_shard, recompute = :none, param_dtype, seed, ...)

Checks all, then splits the model over the gangs (nothing: one rank), and gives it memory and first values. Once, before
the optimizer. Returns the model. Strategies: `:full_shard`, `:shard_grad_op`, `:no_shard`. Collective.

`reshard_after_forward`: -1 (the strategy's), 0, 1, or k over 1: after forward values stay split over k consecutive ranks, from
which backward gathers them.

`activation_offload = true`: on a GPU, what blocks save lies in pinned memory of the host until their backward.

Over tp: `plan`, `rows`, `sequence_parallel`, `loss_parallel`, `overlap_chunks`, as in `tensor_parallel!`. Over cp: `context_method` (`:ring`, `:all_gather`, `:all_to_all`). Over pp: `pipeline = (schedule = "zbv",
microbatches = 8, stages_per_rank = 2)`, `stage_split` (`:even`, `:by_cost`, or `:given` by `first_layers`).
"""
function parallelize!(model::Model, gangs = nothing; keywords...)
    made = parallel_options("parallelize!", keywords)
    @waits LibGangway.gw_parallelize(model, maybe(gangs), made)
    return model
end

"Each match of `pattern` (`*` does not match a dot, `**` does) becomes a parameter group; \"\" is the root, the last. Then `materialize!`."
function fully_shard!(model::Model, pattern, gangs = nothing; keywords...)
    made = options(LibGangway.gw_shard_options, "fully_shard!", keywords)
    @waits LibGangway.gw_fully_shard(model, c_text("fully_shard!", "pattern", pattern), maybe(gangs), made)
    return model
end
"Plain data parallel for the whole model. Then `materialize!`."
function replicate!(model::Model, gangs = nothing; keywords...)
    made = options(LibGangway.gw_shard_options, "replicate!", keywords)
    @waits LibGangway.gw_replicate(model, maybe(gangs), made)
    return model
end
"""
    tensor_parallel!(model, gangs = nothing; plan, rows, sequence_parallel = false, loss_parallel = true,
                     overlap_chunks = 1)

Splits modules over tp, before `recompute!`, `fully_shard!` and `replicate!`. `plan` has rows as text, a line each:
`"model.layers.*.mlp.up_proj -> colwise"`. `rows` has them as `pattern => style` or
`(pattern = "0", style = :colwise, output = :shard, output_dim = 1)`; styles are `:colwise`, `:rowwise`,
`:sequence_parallel`, `:replicate`, `:prepare_input`, `:prepare_output`, `input` and `output` are `:replicate`, `:varying`,
`:partial` or `:shard` (of a dim from 0 in C's order; -1: its last, Julia's first). They win over those of a custom module's
`parallel_plan` and of a model family. `overlap_chunks` over 1: where a sequence is gathered for a linear or summed into parts, each
rank's part goes in so many chunks, and the product of one chunk runs while another travels. Collective.
"""
function tensor_parallel!(model::Model, gangs = nothing; keywords...)
    made = options(LibGangway.gw_tensor_parallel_options, "tensor_parallel!", keywords)
    @waits LibGangway.gw_tensor_parallel(model, maybe(gangs), made)
    return model
end
"Likewise: attention runs over the parts of the sequence that the ranks of cp have: `:ring`, `:all_gather`,
`:all_to_all`."
function context_parallel!(model::Model, gangs = nothing; method = :ring)
    @waits LibGangway.gw_context_parallel(model, maybe(gangs), choice("context_parallel!", :context_method, method))
    return model
end
"Before `fully_shard!`: `:full`, `:selective`, `:every` (each `every`-th block), `:ratio` (so many of the blocks)."
function recompute!(model::Model, kind::Symbol = :selective; every = 2, ratio = 1.0)
    check(LibGangway.gw_recompute(model, choice("recompute!", :recompute, kind), every, ratio))
    return model
end
"Memory and first values for a wrapped model. Collective."
function materialize!(model::Model, gangs = nothing; seed = 0, master_dtype = Float32)
    @waits LibGangway.gw_module_materialize(model, maybe(gangs), seed, dtype(master_dtype))
    return model
end
"Before `parallelize!`: parameters whose whole name matches get no gradient."
function freeze!(model::Model, pattern)
    check(LibGangway.gw_module_freeze(model, c_text("freeze!", "pattern", pattern)))
    return model
end
"Backward adds up without reducing over replicas, until the first one after `no_sync!(model, false)`."
no_sync!(model::Model, on = true) = check(LibGangway.gw_module_set_no_sync(model, on))
"Bytes by kind."
memory_use(model::Model) = facts(LibGangway.gw_memory_use, out -> check(LibGangway.gw_module_memory(model, out)))
"Compares the values of ranks that must hold the same: a `Mismatch` names the first element that differs. Collective."
check_replicas(model::Model) = (@waits LibGangway.gw_module_check_replicas(model, NO_STREAM); model)

# --- parameters -------------------------------------------------------------------------------------------------------

"All parameters of the model, this rank's shards of them."
parameters(model::Model) = collect(model)
"The number of parameters; tied ones count once."
function Base.length(model::Model)
    count = Ref{Csize_t}(0)
    check(LibGangway.gw_module_parameter_count(model, count))
    return Int(count[])
end
"`for parameter in model`: all parameters, in their order."
Base.iterate(model::Model, i = 0) = i >= length(model) ? nothing :
    (take(Param, out -> LibGangway.gw_module_parameter(model, i, out)), i + 1)
Base.eltype(::Type{Model}) = Param

"Elements of all parameters together, over all ranks; buffers do not count."
num_parameters(model::Model) =
    reduce(+, (prod(info.dims) for info in map(describe, parameters(model)) if !info.is_buffer); init = 0)

"By whole name. `Gangway.NotFound`."
Base.getindex(model::Model, name::AbstractString) = take(Param, out ->
    LibGangway.gw_module_find_parameter(model, c_text("model", "name", name), out))

"Name, layout, size (`dims`, reversed), type, own rows (of the last dim, from 0) of a parameter."
function describe(parameter::Param)
    found = facts(LibGangway.gw_parameter_info, out -> check(LibGangway.gw_parameter_describe(parameter, out)))
    return merge(found, (dtype = element_type(found.dtype), is_buffer = found.is_buffer != 0,
                         trainable = found.trainable != 0))
end

const PARTS = (value = LibGangway.GW_PART_VALUE, gradient = LibGangway.GW_PART_GRADIENT,
               full_value = LibGangway.GW_PART_FULL_VALUE, full_gradient = LibGangway.GW_PART_FULL_GRADIENT)
part_number(part) = haskey(PARTS, part) ? PARTS[part] : refuse("part is :", part, ", not one of :", join(keys(PARTS), ", :"))

empty_view() = Ref(LibGangway.gw_view(C_NULL, LibGangway.GW_DEVICE_CPU, 0, 0, 0, C_NULL, C_NULL, 0))

"""
    tensor(parameter, part = :value)
    tensor(parameter, optimizer, name)
    tensor(group, index, part = :full_value)

A part of a parameter, or this rank's rows of an optimizer's state ("exp_avg", "exp_avg_sq", "momentum"), with a handle that
keeps its memory, for `array` and `to_dlpack`.
"""
tensor(parameter::Param, part::Symbol = :value) =
    take(Tensor, out -> LibGangway.gw_parameter_tensor(parameter, part_number(part), out))
tensor(parameter::Param, optimizer::Optimizer, name) = take(Tensor, out ->
    LibGangway.gw_parameter_state_tensor(parameter, optimizer, c_text("tensor", "name", name), out))

"""
    local_array(parameter, part = :value)

This rank's rows of the master (`:value`) or of the gradient (`:gradient`), without a copy. Values are read-only: `assign!`
writes them, or an update of their shard group.
"""
function local_array(parameter::Param, part::Symbol = :value)
    made = array(tensor(parameter, part))
    part in (:value, :full_value) && lock_rows!(made)
    return made
end
"This rank's rows of an optimizer's state, without a copy."
state_array(parameter::Param, optimizer::Optimizer, name) = array(tensor(parameter, optimizer, name))

"The whole value on every rank. Collective."
gathered(parameter::Param) =
    array(take(Tensor, out -> LibGangway.gw_parameter_gather(parameter, NO_STREAM, out)))
"The whole gradient on every rank. Collective."
gathered_gradient(parameter::Param) =
    array(take(Tensor, out -> LibGangway.gw_parameter_gather_gradient(parameter, NO_STREAM, out)))
"New values from a floating array of the global size, or of this rank's rows alone (of the last dim). Collective."
function assign!(parameter::Param, values)
    given = views("assign!", "values", (values,))
    GC.@preserve given @waits LibGangway.gw_parameter_assign(parameter, given, NO_STREAM)
    return parameter
end

# --- tensors ----------------------------------------------------------------------------------------------------------

"A tensor of the library with a copy of `x`."
function Tensor(x::AbstractArray)
    given = views("Tensor", "x", (x,))
    return GC.@preserve given take(Tensor, out -> LibGangway.gw_tensor_copy(given, out))
end
"The memory of a tensor as an array, which keeps it alive; of a tensor on a GPU a copy."
function array(tensor::Tensor)
    view = empty_view()
    check(LibGangway.gw_tensor_view(tensor, view))
    view[].device_type == LibGangway.GW_DEVICE_CPU || return array(to_host(tensor))
    return borrow(view[], tensor, is_read_only(tensor))
end
"A copy of a tensor in memory of the host. Waits for the work that the device has."
to_host(tensor::Tensor) = take(Tensor, out -> LibGangway.gw_tensor_to_host(tensor, NO_STREAM, out))
"""
    order(tensor, stream = NO_STREAM)

Later work on `stream`, a cudaStream_t (none: the device's own), comes after all that the library has put on the tensor's
device by now.
"""
order(tensor::Tensor, stream = NO_STREAM) = check(LibGangway.gw_tensor_order(tensor, stream))
"Whether the tensor's memory must not be written: it is of a shared region, or came so by DLPack."
is_read_only(tensor::Tensor) = LibGangway.gw_tensor_is_read_only(tensor) == 1
"Takes over a `DLManagedTensorVersioned *`."
from_dlpack(managed::Ptr) = take(Tensor, out -> LibGangway.gw_tensor_from_dlpack(managed, out))
"A `DLManagedTensorVersioned *` whose receiver must call its deleter."
function to_dlpack(tensor::Tensor)
    out = Ref(Ptr{LibGangway.DLManagedTensorVersioned}(C_NULL))
    check(LibGangway.gw_tensor_to_dlpack(tensor, out))
    return out[]
end

# --- manual forward and backward --------------------------------------------------------------------------------------

"`Frame(model; loss_scale = 1, step, microbatch, sequence_parts = false)`: what one forward keeps for its backward. Over cp
inputs and outputs are whole sequences, or with `sequence_parts` this rank's parts of them."
Frame(model::Model; keywords...) = take_with(Frame, LibGangway.gw_frame_options, "Frame", keywords) do made, out
    LibGangway.gw_frame_create(model, made, out)
end
"Forgets what was saved, so that the frame can be used again."
reset!(frame::Frame) = check(LibGangway.gw_frame_reset(frame))

const MOST_OUTPUTS = 16

# What forward or backward gives: arrays, or nothing where there is no gradient.
function tensors(call)
    raw, count = fill(Ptr{LibGangway.gw_tensor}(C_NULL), MOST_OUTPUTS), Ref{Csize_t}(0)
    made = @waits call(raw, MOST_OUTPUTS, count) map(Tensor, raw[1:Int(count[])])
    return Any[isopen(tensor) ? array(tensor) : nothing for tensor in made]
end

"Outputs for these inputs, as a vector of arrays; without a frame: evaluation. Collective."
function forward(model::Model, inputs...; frame = nothing)
    given = views("forward", "inputs", inputs)
    held = frame === nothing ? C_NULL : frame
    return GC.@preserve given tensors((raw, most, count) -> LibGangway.gw_module_forward(
        model, given, length(given), held, NO_STREAM, raw, most, count))
end
"Input gradients for these output gradients (none for a loss); adds to the parameters' gradients. Collective."
function backward(model::Model, frame::Frame, output_grads...)
    given = views("backward", "output_grads", output_grads)
    return GC.@preserve given tensors((raw, most, count) -> LibGangway.gw_module_backward(
        model, given, length(given), frame, NO_STREAM, raw, most, count))
end

# --- files ------------------------------------------------------------------------------------------------------------

"""
    save(model, folder; dtype, max_file_bytes = 0)

Writes `folder/model.safetensors` with Hugging Face's names and, for a decoder, config.json; with `max_file_bytes` several
files of up to so many bytes, and their index. One commit: readers find all of the earlier checkpoint or all of the new one,
whenever the save ends or is killed. Collective.
"""
function save(model::Model, folder; keywords...)
    made = options(LibGangway.gw_save_options, "save", keywords)
    @waits LibGangway.gw_module_save(model, c_text("save", "folder", folder), made)
    return nothing
end
"""
    load!(model, path; ignore_extra = false, ignore_config = false)

Values from a file or a folder of Float64, Float32, BFloat16 or Float16, on any mesh. `ignore_extra`: tensors that the
model does not have are no error. `ignore_config`: the folder's config.json may describe another model. Collective.
"""
function load!(model::Model, path; keywords...)
    made = options(LibGangway.gw_load_options, "load!", keywords)
    @waits LibGangway.gw_module_load(model, c_text("load!", "path", path), made)
    return model
end
