# Own compute as a module: Julia functions that the library calls.

"""
    Parameter(name, dims; kind = :normal, deviation = 0.02, fill = nothing, dtype, frozen = false)
    Parameter(name, values; dtype, frozen = false)

One parameter of a custom module or a shard group. An integer or a tuple of integers is its dims (Julia's size), an array its
first values, equal on every rank: `Parameter("w", (3, 4))`, `Parameter("b", zeros(Float32, 3))`. `kind` is `:normal`,
`:zeros` or `:ones`; or `fill(first, last, out)` writes the slices `first:last` (from 1) of the last dim into `out`, on the
rank that holds them. In a shard group an array of Float64 gives a Float64 parameter, any other a Float32 one.
"""
struct Parameter
    name::String
    dims::Dims
    keywords::NamedTuple
    initializer::NamedTuple
    fill::Any
end
function Parameter(name, dims; fill = nothing, keywords...)
    its, init = split_keywords("Parameter", values(keywords), ParameterKeywords, LibGangway.gw_init_options)
    return Parameter(c_text("Parameter", "name", name), dims_of(name, dims), its, init, fill)
end
function Parameter(name, values::AbstractArray; dtype = eltype(values) === Float64 ? Float64 : Float32, keywords...)
    eltype(values) <: Real || refuse("Parameter: ", name, " is an array of ", eltype(values), ", not of numbers")
    whole = ndims(values) == 0 ? reshape(copy(values), 1) : copy(values)
    rows(first, last, out) = copyto!(out, selectdim(whole, ndims(whole), first:last))
    return Parameter(name, size(whole); fill = rows, dtype = dtype, keywords...)
end
Parameter(pair::Pair) = Parameter(pair.first, pair.second)

dims_of(name, dims::Integer) = Dims((dims,))
dims_of(name, dims::Tuple{Vararg{Integer}}) = Dims(dims)
dims_of(name, dims) = refuse("Parameter: ", name, " is ", repr(dims), "; a tuple of integers is its dims, an array its first values")
Parameter(parameter::Parameter) = parameter

# What a caller may set of gw_parameter_options; the rest comes from name and dims.
struct ParameterKeywords end
known_fields(::Type{ParameterKeywords}) = (:dtype, :frozen, :is_buffer)
hidden(::Type{LibGangway.gw_init_options}) = (:fill, :user, :free_user)

struct Fill
    fill::Any
    dims::Dims
end

fill_rows(user::Ptr{Cvoid}, first::Int64, last::Int64, data::Ptr{Cvoid}, count::Csize_t, dtype::Int32) = guarded() do
    f = pinned(user)::Fill
    rows = Base.front(f.dims)
    out = unsafe_wrap(Array, Ptr{element_type(dtype)}(data), (rows..., Int(last - first)))
    f.fill(Int(first) + 1, Int(last), out)
end

# The C array of the parameters, and what its pointers point at.
function parameter_array(call, parameters)
    roots, list, inits = Any[], LibGangway.gw_parameter_options[], Any[]
    for p in parameters
        length(p.dims) <= 8 || refuse(call, ": parameter ", p.name, " has ", length(p.dims), " dims; 8 are the most")
        made = options(LibGangway.gw_parameter_options, call, merge((name = p.name,), p.keywords))
        set_field!(made, :dims, ntuple(i -> i <= length(p.dims) ? Int64(p.dims[end-i+1]) : Int64(0), 8))
        set_field!(made, :ndim, length(p.dims))
        init = options(LibGangway.gw_init_options, call, p.initializer)
        set_field!(made, :initializer, Base.unsafe_convert(Ptr{LibGangway.gw_init_options}, init.ref))
        push!(roots, made, init)
        push!(inits, init)
        push!(list, made[])
    end
    # Pinned when nothing can be refused here any more: from now on the library frees them.
    for (p, init) in zip(parameters, inits)
        p.fill === nothing || use_fill!(init, p)
    end
    push!(roots, list)
    return list, roots
end

function use_fill!(init, p)
    held = pin(Fill(p.fill, p.dims))
    for (name, value) in ((:kind, LibGangway.GW_INIT_FILL), (:fill, FILL_ROWS[]), (:user, address(held)),
                          (:free_user, FREE_PIN[]))
        set_field!(init, name, value)
    end
    return nothing
end

"""
What a callback of a custom module sees; valid during the callback. Properties: `inputs`, `outputs`, `output_grads`,
`input_grads`, `parameters`, `parameter_grads` (vectors of arrays; nothing where a gradient is zero, not wanted or frozen;
only outputs in forward, `input_grads` and `parameter_grads` can be written),
`state` (what forward leaves for backward), `training`, `recomputing`, `microbatch`, `step`, `seed`, `loss_scale`, `gangs`.
"""
mutable struct Call
    ptr::Ptr{LibGangway.gw_call} # null when the callback has ended
    lent::Vector{Any}
end

raw(call::Call) = unsafe_load(pointer_of(call))

function pointer_of(call)
    ptr = getfield(call, :ptr)
    ptr == C_NULL && refuse("this call is over: a call is valid during its callback")
    return ptr
end

const CALL_ARRAYS = (:inputs, :outputs, :output_grads, :input_grads, :parameters, :parameter_grads)
const CALL_FACTS = (:training, :recomputing, :microbatch, :step, :seed, :loss_scale)
Base.propertynames(::Call) = (CALL_ARRAYS..., CALL_FACTS..., :state, :gangs)

# Written out for each name, so that reading a property builds only that property.
function Base.getproperty(call::Call, name::Symbol)
    c = raw(call)
    name === :inputs && return lend(call, c.inputs, c.input_count, true)
    name === :outputs && return lend(call, c.outputs, c.output_count, c.phase != LibGangway.GW_PHASE_FORWARD)
    name === :output_grads && return lend(call, c.output_grads, c.output_count, true)
    name === :input_grads && return lend(call, c.input_grads, c.input_count, false)
    name === :parameters && return lend(call, c.parameters, c.parameter_count, true)
    name === :parameter_grads && return lend(call, c.parameter_grads, c.parameter_count, false)
    name === :state && return saved_state(c)
    name === :gangs && return c.gangs == C_NULL ? nothing : Gangs(LibGangway.gw_gangs_retain(c.gangs))
    name === :training && return c.training != 0
    name === :recomputing && return c.recomputing != 0
    name in CALL_FACTS && return getfield(c, name)
    refuse("a call has no ", name, "; it has ", join(propertynames(call), ", "))
end

function lend(call, views, count, read_only)
    views == C_NULL && return Any[]
    made, lent = Vector{Any}(undef, count), getfield(call, :lent)
    for i in 1:count
        made[i] = borrow(unsafe_load(views, i), nothing, read_only)
        push!(lent, made[i])
    end
    return made
end

function saved_state(c)
    state = unsafe_load(c.state)
    return state == C_NULL ? nothing : pinned(state)
end

function Base.setproperty!(call::Call, name::Symbol, value)
    name === :state || refuse("a call's ", name, " cannot be set; only its state can")
    c = raw(call)
    old = unsafe_load(c.state)
    unsafe_store!(c.state, address(pin(value)))
    free_pin(old)
    return value
end

struct CustomFunctions
    shapes::Any
    forward::Any
    backward_input::Any
    backward_weight::Any
    accepts::Any
end

function run_phase(f, user, ptr)
    call = Call(ptr, Any[])
    ended() = (setfield!(call, :ptr, Ptr{LibGangway.gw_call}(C_NULL)); foreach(give_back!, getfield(call, :lent)))
    return guarded(() -> f(pinned(user)::CustomFunctions, call), ended)
end

call_forward(user::Ptr{Cvoid}, ptr::Ptr{LibGangway.gw_call}) = run_phase((f, call) -> f.forward(call), user, ptr)
call_input(user::Ptr{Cvoid}, ptr::Ptr{LibGangway.gw_call}) = run_phase((f, call) -> f.backward_input(call), user, ptr)
call_weight(user::Ptr{Cvoid}, ptr::Ptr{LibGangway.gw_call}) = run_phase((f, call) -> f.backward_weight(call), user, ptr)
call_shapes(user::Ptr{Cvoid}, ptr::Ptr{LibGangway.gw_call}) = run_phase(user, ptr) do f, call
    c = raw(call)
    outputs = f.shapes(Any[described(unsafe_load(c.inputs, i)) for i in 1:c.input_count])
    length(outputs) == c.output_count ||
        refuse("shapes gave ", length(outputs), " outputs, the module has ", c.output_count)
    for i in 1:length(outputs)
        write_shape!(c.outputs, i, outputs[i])
    end
end

described(view) = (element_type(view.dtype), reversed_shape(view, DIMS[view.ndim+1]))

function write_shape!(outputs, i, (T, dims))
    length(dims) <= 8 || refuse("shapes gave output ", i, " ", length(dims), " dims; 8 are the most")
    word = dtype(T)
    word == LibGangway.GW_DTYPE_INVALID && refuse("shapes gave output ", i, " elements of ", T)
    v = unsafe_load(outputs, i)
    for d in 1:length(dims)
        unsafe_store!(Ptr{Int64}(v.shape), dims[end-d+1], d)
    end
    unsafe_store!(outputs, LibGangway.gw_view(v.data, v.device_type, v.device_id, length(dims), word, v.shape, v.strides,
                                              v.byte_offset), i)
    return nothing
end

function call_accepts(user::Ptr{Cvoid}, word::Int32)::Int32
    answer = Ref(false)
    guarded() do
        answer[] = (pinned(user)::CustomFunctions).accepts(element_type(word))
    end
    return answer[]
end

const FORWARD, INPUT, WEIGHT, SHAPES, ACCEPTS, FILL_ROWS =
    Ref(C_NULL), Ref(C_NULL), Ref(C_NULL), Ref(C_NULL), Ref(C_NULL), Ref(C_NULL)
function make_module_callbacks()
    FORWARD[] = @cfunction(call_forward, Int32, (Ptr{Cvoid}, Ptr{LibGangway.gw_call}))
    INPUT[] = @cfunction(call_input, Int32, (Ptr{Cvoid}, Ptr{LibGangway.gw_call}))
    WEIGHT[] = @cfunction(call_weight, Int32, (Ptr{Cvoid}, Ptr{LibGangway.gw_call}))
    SHAPES[] = @cfunction(call_shapes, Int32, (Ptr{Cvoid}, Ptr{LibGangway.gw_call}))
    ACCEPTS[] = @cfunction(call_accepts, Int32, (Ptr{Cvoid}, Int32))
    FILL_ROWS[] = @cfunction(fill_rows, Int32, (Ptr{Cvoid}, Int64, Int64, Ptr{Cvoid}, Csize_t, Int32))
    return nothing
end

"""
    Custom(; shapes = nothing, forward, backward_input, backward_weight = nothing, parameters = [], children = [], inputs = 1,
           outputs = 1, accepts = nothing, name = "Custom", parallel_plan = nothing, parameter_groups = nothing)

A module of Julia functions. `shapes(inputs)` gets `[(type, size), ...]` and returns the outputs' likewise (nothing: each is
one Float64, as a training root's are); the others get a
[`Call`](@ref Gangway.Call): forward fills `call.outputs`; backward_input fills `call.input_grads` from
`call.output_grads`; backward_weight adds to `call.parameter_grads` (nothing: backward_input does both).
`parallel_plan`: how the children are split over tp, as the `plan` of `tensor_parallel!`, with paths that start at this
module. `parameter_groups`: which modules below it `parallelize!` makes parameter groups, as patterns of such paths,
`["layers.*"]`; what they leave is in the group around them. `parameters`: `Parameter`s or `name => dims`; `children`: `name => model`, run by `Gangway.run_child`. A
training root has two outputs, `{loss sum, weight}`. What a function throws comes out of the call that ran it, on that
rank.
"""
function Custom(; shapes = nothing, forward, backward_input, backward_weight = nothing, accepts = nothing, name = "Custom",
                parameters = (), children = (), inputs = 1, outputs = 1, parallel_plan = nothing, parameter_groups = nothing)
    groups = parameter_groups === nothing ? nothing : join(parameter_groups, '\n')
    made = options(LibGangway.gw_custom_options, "Custom", (name = name, input_count = inputs, output_count = outputs,
                                                            parallel_plan = parallel_plan, parameter_groups = groups))
    kids = Model[child for (_, child) in children]
    kid_names = String[c_text("Custom", "children", string(kid)) for (kid, _) in children]
    for (field, value) in ((:forward, FORWARD[]), (:backward_input, INPUT[]),
                           (:free_user, FREE_PIN[]), (:free_state, FREE_PIN[]))
        set_field!(made, field, value)
    end
    shapes === nothing || set_field!(made, :shapes, SHAPES[])
    backward_weight === nothing || set_field!(made, :backward_weight, WEIGHT[])
    accepts === nothing || set_field!(made, :accepts_dtype, ACCEPTS[])
    list, roots = parameter_array("Custom", map(Parameter, parameters))
    # Nothing may throw from here to the call: the library frees the pin, also when it refuses.
    set_field!(made, :user, address(pin(CustomFunctions(shapes, forward, backward_input, backward_weight, accepts))))
    GC.@preserve roots list kids kid_names begin
        raw_kids, raw_names = [kid.ptr for kid in kids], Ptr{Cchar}[pointer(kid) for kid in kid_names]
        for (field, its, count) in ((:parameters, list, :parameter_count), (:children, raw_kids, :child_count))
            set_field!(made, field, pointer(its))
            set_field!(made, count, length(its))
        end
        set_field!(made, :child_names, pointer(raw_names))
        return GC.@preserve raw_kids raw_names take(Model, out -> LibGangway.gw_custom_create(made, out))
    end
end

function run_in_call(f, call, what, child, arrays)
    ptr, given = pointer_of(call), views(what, "arrays", arrays)
    results = fill(empty_view()[], MOST_OUTPUTS)
    count = Ref{Csize_t}(0)
    GC.@preserve given results begin
        @waits f(ptr, child - 1, given, length(given), results, length(results), count)
        return lend(call, pointer(results), Int(count[]), true)
    end
end

"Inside forward: the outputs of a child (from 1) for these inputs, lent for the callback."
run_child(call::Call, child, inputs...) =
    run_in_call(LibGangway.gw_call_forward, call, "run_child", child, inputs)
"Inside backward_input: the child's input gradients (nothing where there is none)."
run_child_backward(call::Call, child, output_grads...) =
    run_in_call(LibGangway.gw_call_backward, call, "run_child_backward", child, output_grads)
