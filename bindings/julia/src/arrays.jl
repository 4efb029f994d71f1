# Arrays as the library sees them: element types, memory, views with reversed dims.

"The 16-bit brain float, as bits: Julia's own (1.11) converts from and to it by `Float32`."
struct BFloat16
    bits::UInt16
end
BFloat16(x::Real) = (b = reinterpret(UInt32, Float32(x)); # to nearest, ties to even; a NaN stays one
    BFloat16(isnan(x) ? ((b >> 16) | 0x0040) % UInt16 : ((b + 0x7fff + ((b >> 16) & 1)) >> 16) % UInt16))
Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(x.bits) << 16)
Base.convert(::Type{T}, x::BFloat16) where {T<:AbstractFloat} = convert(T, Float32(x))
Base.convert(::Type{BFloat16}, x::Real) = BFloat16(x)
Base.zero(::Type{BFloat16}) = BFloat16(0x0000)
Base.show(io::IO, x::BFloat16) = print(io, "BFloat16(", Float32(x), ")")

# 8-bit floats can be moved, not computed with.
struct Float8E4M3
    bits::UInt8
end
struct Float8E5M2
    bits::UInt8
end

const DTYPES = (Int8 => LibGangway.GW_I8, Int16 => LibGangway.GW_I16, Int32 => LibGangway.GW_I32,
                Int64 => LibGangway.GW_I64, UInt8 => LibGangway.GW_U8, UInt16 => LibGangway.GW_U16,
                UInt32 => LibGangway.GW_U32, UInt64 => LibGangway.GW_U64, Float16 => LibGangway.GW_F16,
                Float32 => LibGangway.GW_F32, Float64 => LibGangway.GW_F64, BFloat16 => LibGangway.GW_BF16,
                ComplexF32 => LibGangway.GW_C64, ComplexF64 => LibGangway.GW_C128, Bool => LibGangway.GW_BOOL,
                Float8E4M3 => LibGangway.GW_F8_E4M3, Float8E5M2 => LibGangway.GW_F8_E5M2)

for (T, word) in DTYPES
    @eval dtype(::Type{$T}) = $word
end
dtype(::Type) = LibGangway.GW_DTYPE_INVALID
isdefined(Core, :BFloat16) && @eval dtype(::Type{Core.BFloat16}) = LibGangway.GW_BF16

const ELEMENT_TYPES = Dict{Int32,DataType}(word => T for (T, word) in DTYPES)

function element_type(word)
    T = get(ELEMENT_TYPES, word, nothing)
    T === nothing || return T
    name = unsafe_string(LibGangway.gw_dtype_name(word))
    throw(ArgumentError("elements are $name, for which Julia has no type here"))
end

refuse(parts...) = throw(ArgumentError(string(parts...)))

# The element word of an argument, or a refusal that names it.
@inline function dtype_of(call, name, x::AbstractArray{T}) where {T}
    word = dtype(T)
    word == LibGangway.GW_DTYPE_INVALID && refuse(call, ": ", name, " has elements of ", T, ", not of a number type ",
                                                  "that the library moves (", join(first.(DTYPES), ", "), ")")
    return word
end

# The library reads memory by strides, which ranges, lazy arrays and the like do not have.
strides_or_nothing(x::Array) = strides(x)
function strides_or_nothing(x::AbstractArray)
    x isa Union{StridedArray,DenseArray} && return strides(x)
    return nothing
end

is_dense(::Array) = true
function is_dense(x::AbstractArray)
    steps = strides_or_nothing(x)
    steps === nothing && return false
    want = 1
    for d in 1:ndims(x)
        size(x, d) == 1 || steps[d] == want || isempty(x) || return false
        want *= size(x, d)
    end
    return true
end

# Checks that `x` is one piece of memory with at least `count` elements; returns its word.
@inline function dense(call, name, x::AbstractArray, count = 0)
    word = dtype_of(call, name, x)
    is_dense(x) || refuse_memory(call, name, x)
    length(x) >= count || refuse(call, ": ", name, " has ", length(x), " elements, too small: ", count, " are needed")
    return word
end
dense(call, name, x, count = 0) =
    refuse(call, ": ", name, " is a ", typeof(x), ", not an array")

@noinline function refuse_memory(call, name, x)
    strides_or_nothing(x) === nothing &&
        refuse(call, ": ", name, " is a ", typeof(x), ", which has no memory of its own; pass an Array or a view of one")
    refuse(call, ": ", name, " is not contiguous: size ", size(x), ", strides ", strides(x), "; pass a copy of it")
end

@inline function same_type(call, word, name, x)
    mine = dense(call, name, x)
    mine == word || refuse(call, ": ", name, " has elements of ", eltype(x), ", not of the input's type ",
                           element_type(word))
    return nothing
end

# The same for what a call writes: not lent to read.
@inline function dense_output(call, name, x, count = 0)
    word = dense(call, name, x, count)
    writable(call, name, x)
    return word
end

# The output that belongs to an input of type `word`.
@inline function output_of(call, word, name, x, count)
    same_type(call, word, name, x)
    dense_output(call, name, x, count)
    return nothing
end

@inline writable(call, name, x) = is_read_only(x) &&
    refuse(call, ": ", name, " is read-only memory (a value outside of an update, or a tensor that came so); pass a copy of it")

"""
An array of memory that the library owns. It keeps its owner alive. What is lent for a while (a shard group's full
values, a callback's arrays) becomes empty when the loan ends, so that a late access is a `BoundsError`. What must not be
written throws a `ReadOnlyMemoryError`. `parent` is the plain `Array`, which keeps nothing alive.
"""
mutable struct Borrowed{T,N} <: DenseArray{T,N}
    array::Array{T,N}
    owner::Any
    read_only::Bool
end
Base.size(x::Borrowed) = size(x.array)
Base.strides(x::Borrowed) = strides(x.array)
Base.IndexStyle(::Type{<:Borrowed}) = IndexLinear()
Base.@propagate_inbounds Base.getindex(x::Borrowed, i::Int) = x.array[i]
Base.@propagate_inbounds function Base.setindex!(x::Borrowed, value, i::Int)
    x.read_only && throw(ReadOnlyMemoryError())
    x.array[i] = value
    return x
end
Base.parent(x::Borrowed) = x.array
Base.pointer(x::Borrowed) = pointer(x.array)
Base.unsafe_convert(::Type{Ptr{T}}, x::Borrowed{T}) where {T} = Base.unsafe_convert(Ptr{T}, x.array)
Base.elsize(::Type{<:Borrowed{T}}) where {T} = sizeof(T)

# Ends a loan.
give_back!(x::Borrowed{T,N}) where {T,N} = (x.array = Array{T,N}(undef, ntuple(_ -> 0, N)); nothing)
give_back!(::Nothing) = nothing

# Makes the array read-only from now on.
lock_rows!(x::Borrowed) = (x.read_only = true; nothing)
lock_rows!(::Nothing) = nothing

# A view's element type and number of dims are known when it comes: one jump to code that is compiled for them.
const DIMS = [Val(n) for n in 0:8]

reversed_shape(view, ::Val{N}) where {N} = ntuple(i -> Int(unsafe_load(view.shape, N - i + 1)), Val(N))

# Whether a write to `x` is one to memory that is lent to read.
is_read_only(x::Borrowed) = x.read_only
is_read_only(::Array) = false
is_read_only(x::AbstractArray) = (inner = parent(x); inner !== x && is_read_only(inner))

# What a view shows, as an array; nothing for null data. An empty tensor has no memory to show.
borrow(view::LibGangway.gw_view, owner, read_only = false) =
    borrow_as(element_type(view.dtype), DIMS[view.ndim+1], view, owner, read_only)

function borrow_as(::Type{T}, n_dims::Val{N}, view, owner, read_only) where {T,N}
    dims = reversed_shape(view, n_dims)
    prod(dims) == 0 && N > 0 && return Borrowed(Array{T}(undef, dims), owner, read_only)
    view.data == C_NULL && return nothing
    view.device_type == LibGangway.GW_DEVICE_CPU || error("the memory lies on a GPU, where Julia cannot read it")
    step = 1
    for d in N:-1:1
        n = unsafe_load(view.shape, d)
        view.strides == C_NULL || n == 1 || unsafe_load(view.strides, d) == step ||
            error("the library lent a tensor that is not contiguous")
        step *= n
    end
    return Borrowed(unsafe_wrap(Array, Ptr{T}(view.data + view.byte_offset), dims), owner, read_only)
end

# Views of arrays, with what keeps them and their dims alive while a call runs.
struct Views
    list::Vector{LibGangway.gw_view}
    roots::Vector{Any}
end
Base.length(v::Views) = length(v.list)
Base.unsafe_convert(::Type{Ptr{LibGangway.gw_view}}, v::Views) = pointer(v.list)

function views(call, name, arrays)
    made = Views(LibGangway.gw_view[], Any[])
    for (i, x) in enumerate(arrays)
        add_view!(made, call, length(arrays) == 1 ? name : "$name[$i]", x)
    end
    return made
end

# Strided memory is taken as it is: the library checks what it can use.
function add_view!(made, call, name, x::AbstractArray)
    word = dtype_of(call, name, x)
    steps = strides_or_nothing(x)
    steps === nothing && refuse_memory(call, name, x)
    layout = Int64[reverse(size(x))..., reverse(steps)...]
    push!(made.roots, x, layout)
    data = convert(Ptr{Cvoid}, pointer(x))
    push!(made.list, LibGangway.gw_view(data, LibGangway.GW_DEVICE_CPU, 0, ndims(x), word, pointer(layout),
                                        pointer(layout, ndims(x) + 1), 0))
    return nothing
end
# A gradient that is zero.
add_view!(made, call, name, ::Nothing) =
    push!(made.list, LibGangway.gw_view(C_NULL, LibGangway.GW_DEVICE_CPU, 0, 0, LibGangway.GW_F32, C_NULL, C_NULL, 0))
add_view!(made, call, name, x) = refuse(call, ": ", name, " is a ", typeof(x), ", not an array")

arrays_of(x::AbstractArray) = (x,)
arrays_of(::Nothing) = ()
arrays_of(x) = x
