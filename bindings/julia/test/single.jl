# Facts that one process can show.
using Gangway, Test, Libdl
using Gangway: LibGangway, refuse

include("facts.jl")

const ONE = Gangway.Gang()

include("arrays_facts.jl")
include("model_facts.jl")
include("run_facts.jl")
include("step_facts.jl")

fact("every struct has the layout of the C compiler") do
    @test length(LibGangway.LAYOUT) > 25
    for (T, bytes, fields) in LibGangway.LAYOUT
        @test sizeof(T) == bytes
        @test collect(fieldnames(T)) == [name for (name, _) in fields]
        for (i, (name, offset)) in enumerate(fields)
            @test fieldoffset(T, i) == offset
        end
    end
end

fact("a mesh of fake gangs records what a rank calls") do
    gangs = Gangway.mesh(Gangway.fake_gang(5, 8); tp = 2, pp = 2)
    @test [Gangway.coordinate(gangs, axis) for axis in (:pp, :dp_shard, :tp)] ==
          [(index = 1, degree = 2), (index = 0, degree = 2), (index = 1, degree = 2)]
    allreduce!(gangs.tp, ones(Float32, 3))
    @test occursin("all_reduce", Gangway.flight_record(gangs.tp)) && !occursin("all_reduce", Gangway.flight_record(gangs.pp))
end

fact("every exported name has a text") do
    binding(name) = Base.Docs.Binding(Gangway, name)
    @test filter(name -> occursin("No documentation found", string(Base.Docs.doc(binding(name)))), names(Gangway)) == []
end

fact("no exported name is one of a standard library, and any of them can be used beside it") do
    for name in filter(name -> isfile(joinpath(Sys.STDLIB, name, "Project.toml")), readdir(Sys.STDLIB))
        library = Base.require(Base.identify_package(name))
        taken = filter(word -> Base.isexported(library, word), setdiff(names(Gangway), (:Gangway,)))
        @test filter(word -> getfield(library, word) !== getfield(Gangway, word), taken) == []
    end
end

fact("no two methods are equally good for a call") do
    @test Test.detect_ambiguities(Gangway, Gangway.LibGangway) == []
end

fact("every exported function is bound") do
    @test length(LibGangway.NAMES) == length(LibGangway.ADDRESSES) > 190
    @test all(!=(C_NULL), LibGangway.ADDRESSES)
    @test all(name -> isdefined(LibGangway, name), LibGangway.NAMES)
end

fact("the library's level is checked, and what is no Gangway library is refused") do
    @test Gangway.abi_version() == (major = Gangway.ABI_MAJOR, minor = Gangway.ABI_MINOR)
    @test Gangway.library_version() == Gangway.RELEASE
    own, major, minor = Gangway.RELEASE, Gangway.ABI_MAJOR, Gangway.ABI_MINOR
    @test Gangway.check_version("here.so", VersionNumber(own.major, own.minor, own.patch + 5), major, minor + 1) === nothing
    others = [(VersionNumber(own.major + 1), major + 1, minor), (own, major, minor - 1)]
    major == 0 && push!(others, (VersionNumber(own.major, own.minor + 1), major, minor))
    for (release, other_major, other_minor) in others
        @test refused(() -> Gangway.check_version("here.so", release, other_major, other_minor), "here.so",
                      "libgangway $release (ABI level $other_major.$other_minor)", "Gangway.jl $own (ABI level $major.$minor)")
    end
    withenv("GANGWAY_LIBRARY" => "/no/such/libgangway.so") do
        @test refused(Gangway.load_library, "/no/such/libgangway.so", "GANGWAY_LIBRARY")
    end
    withenv("GANGWAY_LIBRARY" => "libm.so.6") do
        @test refused(Gangway.load_library, "no Gangway library", "gw_abi_range")
    end
end

fact("an installed library is found by the loader, else by pkg-config") do
    mktempdir() do folder
        symlink(abspath(Gangway.library_path()), joinpath(folder, Gangway.LIBRARY))
        write(joinpath(folder, "gangway.pc"), "libdir=$folder\nName: gangway\nDescription: a test\nVersion: 0\n")
        program = "using Gangway, Libdl; print(Gangway.library_path(), '\\n', join(dllist(), '\\n'))"
        command = `$(Base.julia_cmd()) -O1 --startup-file=no -e $program`
        file = joinpath(folder, Gangway.LIBRARY)
        path = join(Base.load_path(), ':')
        Sys.which("pkg-config") === nothing ||
            withenv("GANGWAY_LIBRARY" => nothing, "PKG_CONFIG_PATH" => folder, "JULIA_LOAD_PATH" => path) do
            @test file in split(read(command, String), '\n')
        end
        withenv("GANGWAY_LIBRARY" => nothing, "JULIA_LOAD_PATH" => path,
                "LD_LIBRARY_PATH" => join([folder, get(ENV, "LD_LIBRARY_PATH", "")], ':')) do
            @test split(read(command, String), '\n')[1] == Gangway.LIBRARY
        end
    end
end

fact("the preference names the library, unless GANGWAY_LIBRARY does") do
    mktempdir() do folder
        library = joinpath(folder, "preferred.so")
        symlink(abspath(Gangway.library_path()), library)
        uuid = Base.PkgId(Gangway).uuid
        write(joinpath(folder, "Project.toml"), "[deps]\nGangway = \"$uuid\"\n")
        write(joinpath(folder, "LocalPreferences.toml"), "[Gangway]\nlibrary = \"$library\"\n")
        path = join([folder; Base.load_path(); "@stdlib"], ':')
        program = joinpath(@__DIR__, "preferred.jl")
        command = `$(Base.julia_cmd()) -O1 --startup-file=no $program $uuid $library`
        withenv("GANGWAY_LIBRARY" => nothing, "JULIA_LOAD_PATH" => path) do
            @test success(pipeline(command; stderr = stderr))
        end
    end
end

fact("configuration, log and names come as texts") do
    @test occursin("GANGWAY_TIMEOUT_MS", Gangway.configuration())
    memory = Gangway.host_memory()
    @test 0 < memory.used <= memory.total && 0 < memory.available <= memory.total
    log = Gangway.read_log()
    @test log.text isa String && log.next >= 0
    gang = Gangway.Gang(; name = "cable")
    @test Gangway.name(gang) == "cable"
    @test Gangway.engine(gang) == "self" && Gangway.device(gang) == "cpu"
    @test Gangway.rank(gang) == 0 && length(gang) == 1
    @test occursin("cable", repr(gang))
    barrier(gang)
    @test occursin("barrier", Gangway.flight_record(gang))
    mktempdir() do folder
        @test Gangway.trace(() -> (barrier(gang); 7), gang, folder) == 7
        barrier(gang)
        lines = readlines(joinpath(folder, "rank-0.json"))
        @test count(line -> occursin("\"barrier\"", line) && occursin("\"user\"", line), lines) == 1
        @test lines[end] == "]"
        @test thrown(() -> Gangway.trace(() -> error("not reached"), gang, "/dev/null/x")) isa Gangway.IOFailed
    end
    @test Gangway.traffic(gang).calls isa UInt64
    @test thrown(() -> Gangway.native_handle(gang)) isa Gangway.NotSupported
end

fact("options start with the library's defaults, and keywords set them") do
    made = Gangway.options(LibGangway.gw_decoder_options, "Llama", (dim = 64, tied = true, eps = 1f-6))
    @test made[].struct_size == sizeof(LibGangway.gw_decoder_options)
    @test made[].dim == 64 && made[].tied == 1 && made[].eps == Float64(1f-6)
    @test made[].layers == 4 && made[].rope_theta == 10000
    rules = Gangway.options(LibGangway.gw_adamw_options, "AdamW",
                            (rules = [(pattern = "*.bias", lr_scale = 0.5), (pattern = "**", frozen = true)],
                             schedule = :cosine, moment_dtype = Gangway.BFloat16))
    @test rules[].rule_count == 2 && rules[].schedule == LibGangway.GW_COSINE
    @test rules[].moment_dtype == LibGangway.GW_BF16
    second = unsafe_load(rules[].rules, 2)
    @test unsafe_string(second.pattern) == "**" && second.frozen == 1 && second.lr_scale == 1
end

fact("wrong keywords are refused by a text that lists the right ones") do
    @test refused(() -> Llama(; width = 3), "Llama", "unknown keyword width", "dim", "kv_heads"; kind = ArgumentError)
    @test refused(() -> Llama(; struct_size = 3), "unknown keyword struct_size")
    @test refused(() -> Llama(; dim = "wide"), "Llama", "dim", "\"wide\"", "not a number")
    @test refused(() -> Llama(; layers = 2.5), "layers is 2.5")
    @test refused(() -> Gangway.init(; tpp = 2), "init", "unknown keyword tpp", "dp_shard", "timeout_ms")
    @test refused(() -> parallelize!(Llama(); strategy = :all), "strategy is :all", ":full_shard")
    @test refused(() -> parallelize!(Llama(); param_dtype = String), "param_dtype is String")
    @test refused(() -> Gangway.Gang(; name = "a\0b"), "name holds a zero character")
    @test refused(() -> Gangway.Gang(; name = 3), "name is 3, not a text")
    @test refused(() -> Gangway.Gang(; store = "x"), "store is a String")
    @test refused(() -> train_step!(Llama(), nothing, [1]), "MethodError")
    @test refused(() -> Custom(; shapes = 1, forward = 1), "backward_input")
    @test refused(() -> Parameter("w", (2,); size = 3), "unknown keyword size", "deviation", "frozen")
end

const ANSWER = Ref{Int32}(0)
answered(::Ptr{Cvoid}, ::Ptr{LibGangway.gw_call}) = ANSWER[]

fact("each status tells itself apart") do
    names = (:INVALID_ARGUMENT, :NOT_SUPPORTED, :INVALID_STATE, :GANG, :PEER_LOST, :TIMEOUT, :MISMATCH, :ABORTED,
             :NOT_READY, :NOT_FOUND, :FORKED, :CALLER, :OUT_OF_MEMORY, :IO, :CORRUPT, :INTERNAL, :BUSY)
    types = (Gangway.InvalidArgument, Gangway.NotSupported, Gangway.InvalidState, Gangway.GangFailed, Gangway.PeerLost,
             Gangway.Timeout, Gangway.Mismatch, Gangway.Aborted, Gangway.NotReady, Gangway.NotFound, Gangway.Forked,
             Gangway.CallerFailed, Gangway.OutOfMemory, Gangway.IOFailed, Gangway.Corrupt, Gangway.Internal,
             Gangway.Busy)
    for (code, (name, T)) in enumerate(zip(names, types))
        e = Gangway.error_of(Int32(code), C_NULL)
        @test e isa T && e.status === name && e.code == code && e.rank == -1
    end
    @test Gangway.error_of(Int32(999), C_NULL).status === :UNKNOWN
    # Each comes so out of the library: a module whose functions answer by a status.
    made = Gangway.options(LibGangway.gw_custom_options, "Custom", (name = "answering", input_count = 1, output_count = 1))
    answer = @cfunction(answered, Int32, (Ptr{Cvoid}, Ptr{LibGangway.gw_call}))
    foreach(field -> Gangway.set_field!(made, field, answer), (:shapes, :forward, :backward_input))
    model = materialize!(Gangway.take(Model, out -> LibGangway.gw_custom_create(made, out)))
    for (code, T) in enumerate(types)
        ANSWER[] = code
        e = thrown(() -> Gangway.forward(model, Float32[1]))
        @test e isa T && e.code == code && occursin("answering", e.message)
    end
end

fact("a forked child gets a status of its own") do
    gang = Gangway.Gang()
    GC.enable(false) # the child has this thread alone
    child = ccall(:fork, Cint, ())
    if child == 0
        status = LibGangway.gw_gang_barrier(gang, C_NULL)
        ccall(:_exit, Cvoid, (Cint,), status == LibGangway.GW_E_FORKED ? 7 : 1)
    end
    GC.enable(true)
    status = Ref{Cint}(-1)
    @test ccall(:waitpid, Cint, (Cint, Ptr{Cint}, Cint), child, status, 0) == child && status[] == 7 << 8
    barrier(gang)
end

fact("errors of the library carry code, text and call") do
    e = thrown(() -> Gangway.Gang(; engine = "nccl"))
    @test e isa Gangway.NotSupported && e.code == 2 && occursin("nccl", e.message)
    @test occursin("NOT_SUPPORTED", sprint(showerror, e))
    @test thrown(() -> Gangway.Gang(; expected_size = 4)) isa Gangway.InvalidArgument
    @test thrown(() -> AdamW(Llama())) isa Gangway.InvalidState
    @test thrown(() -> freeze!(Llama(), "no.such")) isa Gangway.NotFound
    gang = Gangway.Gang()
    # More than any address space has.
    @test thrown(() -> Gangway.alloc(gang, Float32, 1 << 56)) isa Gangway.OutOfMemory
    e = thrown(() -> bcast!(gang, [1.0]; root = 5))
    @test e isa Gangway.InvalidArgument && occursin("rank 5 is outside", e.message) && occursin("broadcast", e.op * e.message)
    Gangway.release!(gang)
    @test refused(() -> barrier(gang), "the Gang was released"; kind = Gangway.InvalidState)
    mktempdir() do folder
        model = parallelize!(Llama(dim = 16, layers = 1, heads = 2))
        @test thrown(() -> Gangway.load!(model, joinpath(folder, "none"))) isa
              Union{Gangway.IOFailed,Gangway.NotFound}
        write(joinpath(folder, "model.safetensors"), "no tensors at all here")
        @test thrown(() -> Gangway.load!(model, folder)) isa Gangway.Corrupt
    end
end

fact("the gang's deadline is a timeout, with rank and call") do
    gangs = Gangway.thread_gangs(2; timeout_ms = 100) # the second one lives and never comes
    e = GC.@preserve gangs thrown(() -> recv!(gangs[1], zeros(1), 1))
    @test e isa Gangway.Timeout && e.rank == 0 && occursin("recv", e.op * e.message)
end

fact("a store of Julia functions makes a gang, and its exceptions come back as themselves") do
    kept = Dict{String,Vector{UInt8}}()
    store = Gangway.Store((key, value) -> (kept[key] = value), key -> get(kept, key, nothing),
                          key -> delete!(kept, key))
    gang = Gangway.Gang(; store = store, rank = 0, size = 1)
    @test length(gang) == 1
    failing = Gangway.Store((key, value) -> error("the disk is full"), key -> error("the disk is full"), identity)
    e = thrown(() -> Gangway.Gang(; store = failing, rank = 0, size = 2, timeout_ms = 60_000))
    @test e isa ErrorException && e.msg == "the disk is full"
    e = thrown(() -> Gangway.Gang(; all_gather = bytes -> error("no pipe"), rank = 0, size = 1))
    @test e isa ErrorException && e.msg == "no pipe"
    @test refused(() -> Gangway.Gang(; all_gather = bytes -> UInt8[1], rank = 0, size = 1), "gave 1 bytes")
    e = thrown(() -> Gangway.FileStore("/no/such/folder"))
    @test e isa Gangway.IOFailed && occursin("/no/such/folder", e.message) && e.system_error == Libc.ENOENT
end

fact("the do-block shuts down, and aborts when it throws") do
    kept = Gangway.init() do gangs
        allreduce!(gangs.root, [1.0])
        gangs
    end
    @test thrown(() -> barrier(kept.root)) isa Gangway.InvalidState
    kept = Ref{Any}(nothing)
    e = thrown(() -> Gangway.init(gangs -> (kept[] = gangs; error("my own fault"))))
    @test e isa ErrorException && e.msg == "my own fault"
    broken = thrown(() -> barrier(kept[].root))
    @test broken isa Gangway.Aborted && occursin("my own fault", broken.message)
end

fact("gangs of a mesh are found by name, and unknown names are refused") do
    gangs = Gangway.init()
    for name in propertynames(gangs)
        @test length(getproperty(gangs, name)) == 1
    end
    @test length(gangs["dp_shard+cp"]) == 1
    @test refused(() -> gangs.xp, "no gang xp", "tp")
    @test thrown(() -> gangs["xp"]) isa Gangway.InvalidArgument
    @test Gangway.coordinate(gangs, :tp) == (index = 0, degree = 1)
    @test Gangway.data_shard(gangs) == (index = 0, count = 1)
    @test thrown(() -> Gangway.init(; tp = 3)) isa Gangway.InvalidArgument
    @test Gangway.current() === nothing
    Gangway.with_current(gangs) do
        @test length(Gangway.current().root) == 1
    end
    @test Gangway.current("cpu") isa Gangway.Gangs
    fake = Gangway.fake_gang(1, 4)
    @test Gangway.rank(fake) == 1 && allreduce(fake, [2.0]) == [8.0]
    @test length(Gangway.fake_gangs().dp) == 1
    Gangway.shutdown(gangs)
end

exit(report_counts() ? 0 : 1)
