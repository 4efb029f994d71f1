# Arrays: what is taken, what is refused, and how dims run.

fact("arguments are refused by texts that name them and the reason") do
    gang = Gangway.Gang()
    @test refused(() -> allreduce!(gang, ["a"]), "allreduce!", "input", "String"; kind = ArgumentError)
    @test refused(() -> allreduce!(gang, 3.0), "input is a Float64, not an array")
    @test refused(() -> allreduce!(gang, 1:3), "input is a UnitRange", "no memory of its own")
    @test refused(() -> allreduce!(gang, view(ones(4, 4), 1:2, :)), "input is not contiguous", "(2, 4)", "(1, 4)")
    @test refused(() -> allreduce!(gang, ones(4), ones(3)), "output has 3 elements, too small: 4")
    @test refused(() -> allreduce!(gang, ones(4), ones(Float32, 4)), "output has elements of Float32", "Float64")
    @test refused(() -> allreduce!(gang, ones(4); op = :average), "op is :average", ":mean")
    @test refused(() -> allreduce!(gang, ones(4); op = sqrt), "op is sqrt")
    @test refused(() -> allgather!(gang, ones(2), ones(1)), "allgather!", "output", "too small: 2")
    @test refused(() -> allgather!(gang, ones(2), [ones(2), ones(2)]), "outputs has 2 arrays")
    @test refused(() -> allgather!(gang, ones(2), [ones(1)]), "outputs[1] has 1 elements")
    @test refused(() -> reducescatter!(gang, ones(1), ones(2)), "reducescatter!", "input has 1 elements")
    @test refused(() -> gather!(gang, ones(1)), "gather!", "output is a Nothing")
    @test refused(() -> scatter!(gang, nothing, ones(1)), "scatter!", "input is a Nothing")
    @test refused(() -> recv!(gang, Any[1], 0), "recv!", "x has elements of Any")
    @test refused(() -> Gangway.Collective(:all), "op is :all", ":all_reduce")
    @test refused(() -> Gangway.Collective(:all_to_all; input = [1]), "needs count")
    @test thrown(() -> allreduce!(gang, [1, 2]; op = :mean)) isa Gangway.InvalidArgument
end

fact("contiguous views, reshaped and reinterpreted arrays are taken without copies") do
    gang = Gangway.fake_gang(0, 2)
    x = ones(4, 4)
    allreduce!(gang, view(x, :, 2:3))
    @test x == [j in (2, 3) ? 2.0 : 1.0 for _ in 1:4, j in 1:4]
    allreduce!(gang, view(x, 2:3, 1))
    @test x[:, 1] == [1, 2, 2, 1]
    allreduce!(gang, reshape(view(x, :, 4), 2, 2))
    @test x[:, 4] == [2, 2, 2, 2]
    y = ComplexF64[1 + 2im]
    allreduce!(gang, reinterpret(Float64, y))
    @test y == [2 + 4im]
    @test allreduce!(gang, Float64[]) == Float64[]
    @test allreduce!(gang, fill(3.0)) == fill(6.0)
end

fact("every element type moves") do
    gang = Gangway.Gang()
    for (T, word) in Gangway.DTYPES
        bits = rand(UInt8, 3 * sizeof(T))
        T === Bool && (bits .&= 0x01)
        x = collect(reinterpret(T, bits))
        @test Gangway.element_type(word) === T
        @test LibGangway.gw_dtype_bytes(word) == sizeof(T)
        @test reinterpret(UInt8, vec(allgather(gang, x))) == bits
    end
    @test refused(() -> Gangway.element_type(Int32(77)), "unknown")
end

view_of_columns() = view(Float64[10i + j for i in 1:4, j in 1:4], 2:3, 1:2:4)

fact("dims are reversed") do
    tensor = Gangway.Tensor(Float32[10i + j for i in 1:2, j in 1:3])
    view = Gangway.empty_view()
    Gangway.check(LibGangway.gw_tensor_view(tensor, view))
    @test [unsafe_load(view[].shape, d) for d in 1:view[].ndim] == [3, 2]
    x = Gangway.array(tensor)
    @test size(x) == (2, 3) && x[2, 3] == 23 && strides(x) == (1, 2)
    @test x isa DenseArray && x' * x == parent(x)' * parent(x)
    strided = Gangway.array(Gangway.Tensor(view_of_columns()))
    @test strided == view_of_columns()
end

fact("a tensor goes through DLPack and back") do
    managed = Gangway.to_dlpack(Gangway.Tensor([1.0 2.0; 3.0 4.0]))
    GC.gc()
    again = Gangway.array(Gangway.from_dlpack(managed))
    @test again == [1.0 2.0; 3.0 4.0]
end

fact("brain floats round to nearest, ties to even") do
    @test Float32(Gangway.BFloat16(1.0)) === 1.0f0
    @test Float32(Gangway.BFloat16(reinterpret(Float32, 0x3f808000))) === 1.0f0
    @test Float32(Gangway.BFloat16(reinterpret(Float32, 0x3f818000))) === reinterpret(Float32, 0x3f820000)
    @test isnan(Float32(Gangway.BFloat16(NaN))) && Float32(Gangway.BFloat16(-Inf)) === -Inf32
    gang = Gangway.fake_gang(0, 2)
    @test Float32.(allreduce(gang, Gangway.BFloat16.([1.5, -2]))) == [3, -4]
end

@noinline function use_memory_after_release()
    gang = Gangway.Gang()
    x = Gangway.alloc(gang, Float32, 3, 2)
    y = Gangway.alloc_shared(gang, Int64, 5)
    zeroed = y == zeros(5)
    Gangway.release!(gang)
    GC.gc()
    x .= 1
    y .= 2
    return size(x) == (3, 2) && UInt(pointer(x)) % 64 == 0 && zeroed && sum(x) == 6 && sum(y) == 10
end

fact("memory of the gang is an array that outlives its gang") do
    @test use_memory_after_release()
end

fact("a tensor of the gang's memory is ordered on no stream of a CPU") do
    gang = Gangway.Gang()
    tensor = Gangway.alloc_tensor(gang, Float32, 3, 2)
    Gangway.order(tensor)
    @test refused(() -> Gangway.order(tensor, Ptr{Cvoid}(8)), "stream is not null")
    Gangway.release!(gang)
    @test size(Gangway.array(tensor)) == (3, 2)
end

# `DLManagedTensorVersioned`, as DLPack lays it out.
struct Managed
    version::NTuple{2,UInt32}
    context::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
    flags::UInt64
    data::Ptr{Cvoid}
    device::NTuple{2,Int32}
    ndim::Int32
    code_bits_lanes::UInt32
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
end
const DELETED = Ref(0)
delete_managed(::Ptr{Cvoid}) = (DELETED[] += 1; nothing)

fact("a tensor of another device or version is refused; one that is taken is deleted once") do
    values, shape = Float32[1, 2], Int64[2]
    deleter = @cfunction(delete_managed, Cvoid, (Ptr{Cvoid},))
    managed(; device = 1, version = 1, lanes = 1) = Ref(Managed((version, 0), C_NULL, deleter, 1, pointer(values),
        (device, 0), 1, 2 | 32 << 8 | lanes << 16, pointer(shape), C_NULL, 0))
    GC.@preserve values shape begin
        take_over(made) = GC.@preserve made Gangway.from_dlpack(Base.unsafe_convert(Ptr{Managed}, made))
        @test refused(() -> take_over(managed(device = 2)), "device")
        @test refused(() -> take_over(managed(version = 9)), "version")
        @test refused(() -> take_over(managed(lanes = 2)), "lanes")
        @test DELETED[] == 0
        kept = managed()
        tensor = take_over(kept)
        x = Gangway.array(tensor)
        @test Gangway.is_read_only(tensor) && Gangway.is_read_only(view(x, 1:1)) && x == [1, 2]
        @test thrown(() -> (x[1] = 3)) isa ReadOnlyMemoryError
        @test refused(() -> allreduce!(Gangway.Gang(), x), "allreduce!: output is read-only"; kind = ArgumentError)
        @test bcast!(Gangway.Gang(), x) === x && x == [1, 2]
        foreach(_ -> Gangway.release!(tensor), 1:2)
        @test DELETED[] == 1
    end
end

# A full value as a DLPack export, of which everything else is gone.
@noinline function exported_full_value()
    group = ShardGroup(nothing, "g", Parameter("w", (2, 3); kind = :ones))
    unshard!(group)
    managed = Gangway.to_dlpack(Gangway.tensor(group, 1))
    reshard!(group)
    Gangway.release!(group)
    return managed
end

fact("a DLPack export outlives its owner and its reshard") do
    managed = exported_full_value()
    collect_all()
    @test Gangway.array(Gangway.from_dlpack(managed)) == ones(2, 3)
end
