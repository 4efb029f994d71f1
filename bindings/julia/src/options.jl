# Option structs: set up by the library's gw_*_init, then by keywords.

# A sized struct with what its pointers point at.
struct Options{T}
    ref::Base.RefValue{T}
    roots::Vector{Any}
end
Base.unsafe_convert(::Type{Ptr{T}}, o::Options{T}) where {T} = Base.unsafe_convert(Ptr{T}, o.ref)
Base.getindex(o::Options) = o.ref[]
pointer_to(o::Options{T}) where {T} = Base.unsafe_convert(Ptr{T}, o.ref)

const RESERVED = (:struct_size, :next, :reserved)

# Fields that the binding fills by other means, per struct.
hidden(::Type) = ()
hidden(::Type{LibGangway.gw_gang_options}) = (:id_size, :all_gather, :user, :free_user)
hidden(::Type{LibGangway.gw_shard_options}) = (:rule_count,)
hidden(::Type{LibGangway.gw_tensor_parallel_options}) = (:row_count,)
hidden(::Type{LibGangway.gw_parallel_options}) = (:shard, :tensor_parallel, :first_layer_count)
hidden(::Type{LibGangway.gw_movement_options}) = (:axes, :axis_count, :axes_keep, :keep_count)
hidden(::Type{LibGangway.gw_dataset_options}) = (:sources, :source_count)
hidden(::Type{LibGangway.gw_batch}) = (:inputs, :input_count, :targets, :target_count)
hidden(::Type{LibGangway.gw_generate_options}) = (:stop_count, :on_token, :user)

known_fields(::Type{T}) where {T} = Tuple(f for f in fieldnames(T) if !(f in RESERVED) && !(f in hidden(T)))

set_up(::Type{T}) where {T} = getfield(LibGangway, Symbol(nameof(T), "_init"))

function options(::Type{T}, call, keywords) where {T}
    made = Options{T}(Ref{T}(), Any[])
    set_up(T)(made, sizeof(T))
    return set_fields!(made, call, keywords)
end

# Writes the keywords into the fields of their names.
function set_fields!(made::Options{T}, call, keywords) where {T}
    for (name, value) in pairs(keywords)
        name in known_fields(T) || refuse_keyword(call, name, known_fields(T))
        field = fieldtype(T, name)
        set_field!(made, name, field_value(made, call, name, field, value))
    end
    return made
end

refuse_keyword(call, name, known) =
    refuse(call, ": unknown keyword ", name, "; it knows ", join(sort!(collect(string.(known))), ", "))

# Writes one field where the struct lies.
function set_field!(o::Options{T}, name, value) where {T}
    index = findfirst(==(name), fieldnames(T))
    GC.@preserve o begin
        place = Base.unsafe_convert(Ptr{T}, o.ref) + fieldoffset(T, index)
        unsafe_store!(Ptr{fieldtype(T, index)}(place), value)
    end
    return o
end

const PLACEMENTS = (replicate = LibGangway.GW_PLACEMENT_REPLICATE, varying = LibGangway.GW_PLACEMENT_VARYING,
                    partial = LibGangway.GW_PLACEMENT_PARTIAL, shard = LibGangway.GW_PLACEMENT_SHARD)
const CHOICES = Dict{Symbol,NamedTuple}(
    :strategy => (full_shard = LibGangway.GW_FULL_SHARD, shard_grad_op = LibGangway.GW_SHARD_GRAD_OP,
                  no_shard = LibGangway.GW_NO_SHARD),
    :recompute => (none = LibGangway.GW_RECOMPUTE_NONE, full = LibGangway.GW_RECOMPUTE_FULL,
                   selective = LibGangway.GW_RECOMPUTE_SELECTIVE, every = LibGangway.GW_RECOMPUTE_EVERY,
                   ratio = LibGangway.GW_RECOMPUTE_RATIO),
    :style => (replicate = LibGangway.GW_STYLE_REPLICATE, colwise = LibGangway.GW_STYLE_COLWISE,
               rowwise = LibGangway.GW_STYLE_ROWWISE, sequence_parallel = LibGangway.GW_STYLE_SEQUENCE_PARALLEL,
               prepare_input = LibGangway.GW_STYLE_PREPARE_INPUT, prepare_output = LibGangway.GW_STYLE_PREPARE_OUTPUT,
               headwise = LibGangway.GW_STYLE_HEADWISE),
    :input => PLACEMENTS, :output => PLACEMENTS,
    :context_method => (ring = LibGangway.GW_CONTEXT_RING, all_gather = LibGangway.GW_CONTEXT_ALL_GATHER,
                        all_to_all = LibGangway.GW_CONTEXT_ALL_TO_ALL),
    :activation => (silu = LibGangway.GW_ACTIVATION_SILU, gelu_tanh = LibGangway.GW_ACTIVATION_GELU_TANH,
                    gelu = LibGangway.GW_ACTIVATION_GELU, relu = LibGangway.GW_ACTIVATION_RELU,
                    tanh = LibGangway.GW_ACTIVATION_TANH),
    :qk_norm => (none = LibGangway.GW_QK_NORM_NONE, head = LibGangway.GW_QK_NORM_HEAD, width = LibGangway.GW_QK_NORM_WIDTH),
    :norms => (before = LibGangway.GW_BLOCK_NORMS_BEFORE, after = LibGangway.GW_BLOCK_NORMS_AFTER,
               both = LibGangway.GW_BLOCK_NORMS_BOTH),
    :rope_scaling => (llama3 = LibGangway.GW_ROPE_SCALING_LLAMA3, linear = LibGangway.GW_ROPE_SCALING_LINEAR,
                      yarn = LibGangway.GW_ROPE_SCALING_YARN, longrope = LibGangway.GW_ROPE_SCALING_LONGROPE),
    :scaling => (tensor = LibGangway.GW_FP8_TENSOR, delayed = LibGangway.GW_FP8_DELAYED, row = LibGangway.GW_FP8_ROW),
    :packing => (stream = LibGangway.GW_PACKING_STREAM, documents = LibGangway.GW_PACKING_DOCUMENTS),
    :stage_split => (even = LibGangway.GW_STAGE_SPLIT_EVEN, by_cost = LibGangway.GW_STAGE_SPLIT_BY_COST,
                     given = LibGangway.GW_STAGE_SPLIT_GIVEN),
    :kind => (normal = LibGangway.GW_INIT_NORMAL, zeros = LibGangway.GW_INIT_ZEROS, ones = LibGangway.GW_INIT_ONES,
              fill = LibGangway.GW_INIT_FILL))

function choice(call, name, value::Symbol)
    known = CHOICES[name]
    haskey(known, value) || refuse(call, ": ", name, " is :", value, ", not one of :", join(keys(known), ", :"))
    return known[value]
end

is_dtype(name) = endswith(string(name), "dtype")

function field_value(made, call, name, ::Type{Int32}, value)
    value isa Symbol && haskey(CHOICES, name) && return choice(call, name, value)
    if value isa Type && is_dtype(name)
        word = dtype(value)
        word == LibGangway.GW_DTYPE_INVALID && refuse(call, ": ", name, " is ", value, ", no number type of the library")
        return word
    end
    return number(call, name, Int32, value)
end
field_value(made, call, name, ::Type{F}, value) where {F<:Number} = number(call, name, F, value)

function number(call, name, ::Type{F}, value) where {F}
    value isa Number || refuse(call, ": ", name, " is ", repr(value), ", not a number")
    try
        return F(value)
    catch
        refuse(call, ": ", name, " is ", value, ", which is no ", F)
    end
end

function field_value(made, call, name, ::Type{Ptr{Cchar}}, value)
    value === nothing && return Ptr{Cchar}(C_NULL)
    value isa AbstractString || refuse(call, ": ", name, " is ", repr(value), ", not a text")
    text = c_text(call, name, value)
    push!(made.roots, text)
    return Ptr{Cchar}(pointer(text))
end

function c_text(call, name, value::AbstractString)
    text = String(value)
    '\0' in text && refuse(call, ": ", name, " holds a zero character")
    return text
end

# Numbers of layers, from 0.
function field_value(made, call, name, ::Type{Ptr{Int64}}, values)
    list = Int64[number(call, name, Int64, value) for value in values]
    push!(made.roots, list)
    name === :first_layers && set_field!(made, :first_layer_count, length(list))
    name === :stop_tokens && set_field!(made, :stop_count, length(list))
    return Ptr{Int64}(pointer(list))
end

# A struct of options, as its keywords: (schedule = "zbv", microbatches = 8).
function field_value(made, call, name, ::Type{Ptr{LibGangway.gw_pipeline_options}}, keywords)
    keywords isa NamedTuple || refuse(call, ": ", name, " is a ", typeof(keywords), ", not a NamedTuple of options")
    nested = options(LibGangway.gw_pipeline_options, string(call, ": ", name), keywords)
    push!(made.roots, nested)
    return pointer_to(nested)
end

# An array, or none.
function field_value(made, call, name, ::Type{Ptr{LibGangway.gw_view}}, array)
    list = views(call, string(name), arrays_of(array))
    length(list) <= 1 || refuse(call, ": ", name, " is ", length(list), " arrays, not one")
    push!(made.roots, list)
    return length(list) == 0 ? Ptr{LibGangway.gw_view}(C_NULL) : pointer(list.list)
end

# The blob of another rank.
function field_value(made, call, name, ::Type{Ptr{Cvoid}}, value)
    value isa Vector{UInt8} || refuse(call, ": ", name, " is a ", typeof(value), ", not a Vector{UInt8}")
    push!(made.roots, value)
    name === :id && set_field!(made, :id_size, length(value))
    return Ptr{Cvoid}(pointer(value))
end

# Rules: a list of (pattern = ..., lr_scale = ...) or (pattern = ..., dtype = ...). Rows of a plan: (pattern = ..., style = ...).
const RULE_COUNTS = (rules = :rule_count, rows = :row_count)
of_pair(::Type{LibGangway.gw_plan_row}, row) = (pattern = row[1], style = row[2])
of_pair(::Type, rule) = (pattern = rule[1], dtype = rule[2])
function field_value(made, call, name, ::Type{Ptr{R}}, rules) where {
        R<:Union{LibGangway.gw_optimizer_rule,LibGangway.gw_dtype_rule,LibGangway.gw_plan_row}}
    list = R[]
    for rule in rules
        one = options(R, "$call: $name", rule isa Pair ? of_pair(R, rule) : rule)
        push!(made.roots, one)
        push!(list, one[])
    end
    push!(made.roots, list)
    set_field!(made, RULE_COUNTS[name], length(list))
    return isempty(list) ? Ptr{R}(C_NULL) : pointer(list)
end

# Keywords of one call that belong to several structs.
function split_keywords(call, keywords, types...)
    known = map(known_fields, types)
    for name in keys(keywords)
        any(fields -> name in fields, known) || refuse_keyword(call, name, Iterators.flatten(known))
    end
    return map(fields -> (; (k => v for (k, v) in pairs(keywords) if k in fields)...), known)
end

# Those of parallelize!, of three structs.
function parallel_options(call, keywords)
    its, shard, tensor = split_keywords(call, values(keywords), LibGangway.gw_parallel_options, LibGangway.gw_shard_options,
                                        LibGangway.gw_tensor_parallel_options)
    made = options(LibGangway.gw_parallel_options, call, its)
    for (name, nested) in ((:shard, options(LibGangway.gw_shard_options, call, shard)),
                           (:tensor_parallel, options(LibGangway.gw_tensor_parallel_options, call, tensor)))
        push!(made.roots, nested)
        set_field!(made, name, pointer_to(nested))
    end
    return made
end

# A struct that the library fills in, as a NamedTuple; dims come reversed, texts as Strings.
function facts(::Type{T}, ask) where {T}
    made = options(T, "", NamedTuple())
    ask(made)
    raw = made[]
    names = known_fields(T)
    return NamedTuple{names}(map(f -> fact(raw, f, getfield(raw, f)), names))
end
fact(raw, name, value) = value
fact(raw, name, value::Ptr{Cchar}) = value == C_NULL ? "" : unsafe_string(value)
fact(raw, name, value::NTuple{8,Int64}) = reverse(map(Int, value[1:raw.ndim]))
