# Models, own compute, shard groups, files, on one rank.

fact("a model trains, evaluates, generates") do
    model = parallelize!(Llama(dim = 32, layers = 1, heads = 2, vocab = 16); seed = 3)
    opt = AdamW(model; lr = 0.01)
    tokens = Int64[mod(i + 3j, 16) for i in 1:12, j in 1:4]
    first_loss = Gangway.eval_step(model, tokens).loss
    @test abs(first_loss - log(16)) < 0.5
    result = nothing
    for _ in 1:60
        result = train_step!(model, opt, tokens; max_grad_norm = 1, microbatches = 2)
    end
    @test result.loss < first_loss / 4 && result.weight == 44 && result.step == 60 && !result.skipped
    @test result.grad_norm >= 0 && result.lr ≈ 0.01 && result.skip_reason === :none
    @test Gangway.steps(opt) == 60 && Gangway.learning_rate(opt) ≈ 0.01
    Gangway.learning_rate!(opt, 0.5)
    @test Gangway.learning_rate(opt) == 0.5
    more = generate(model, tokens[1:4, 1]; token_count = 5, temperature = 0)
    @test more == tokens[5:9, 1]
    @test Gangway.memory_use(model).master > 0
    # Labels are used as they are, or shifted where the caller says so; wrong places are told.
    loss = Gangway.eval_step(model, tokens).loss
    @test Gangway.eval_step(model, tokens[1:11, :], tokens[2:12, :]).loss ≈ loss rtol = 1e-4
    @test Gangway.eval_step(model, tokens, tokens; shift_labels = true).loss == loss
    @test refused(() -> Gangway.eval_step(model, tokens, tokens), "is its own token")
    @test refused(() -> Gangway.eval_step(model, tokens[1:11, :], tokens[2:12, :]; shift_labels = true),
                  "is the next token already")
    nothing_counts = train_step!(model, opt, tokens, fill(-100, 12, 4))
    @test nothing_counts.skipped && nothing_counts.skip_reason === :no_weight
end

fact("Float16 trains with a dynamic loss scale") do
    model = parallelize!(Llama(dim = 32, layers = 1, heads = 2, vocab = 16); seed = 3, param_dtype = Float16)
    opt = AdamW(model; lr = 0.01, loss_scale_interval = 2)
    tokens = Int64[mod(i + 3j, 16) for i in 1:12, j in 1:4]
    @test Gangway.loss_scale(opt) == 65536
    Gangway.loss_scale!(opt, 1024)
    results = [train_step!(model, opt, tokens) for _ in 1:3]
    @test [r.loss_scale for r in results] == [1024, 1024, 2048] && results[3].loss < results[1].loss
    Gangway.loss_scale!(opt, 2^24)
    result = train_step!(model, opt, tokens)
    @test result.skip_reason === :non_finite && isfinite(result.loss) && result.loss_scale == 2^24
    @test Gangway.loss_scale(opt) == 2^23
    @test refused(() -> Gangway.loss_scale!(opt, -1), "loss scale = -1")
    fixed = SGD(parallelize!(Linear(3, 2)); loss_scale = 8)
    @test Gangway.loss_scale(fixed) == 8
end

fact("parameters are read, gathered and assigned with reversed dims") do
    model = parallelize!(Linear(3, 2))
    weight, bias = Gangway.parameters(model)
    info = Gangway.describe(weight)
    @test info.dims == (3, 2) && info.dtype === Float32 && info.trainable && !info.is_buffer
    w = Float32[1 2; 3 4; 5 6]
    Gangway.assign!(weight, w)
    Gangway.assign!(bias, Float32[10, 20])
    @test Gangway.gathered(weight) == w && (DEVICE != "cpu" || Gangway.local_array(weight) == w)
    @test Gangway.gathered(model[Gangway.describe(bias).name]) == [10, 20]
    x = Float32[1 0; 0 1; 0 2]
    y, = Gangway.forward(model, x)
    @test y == w' * x .+ [10, 20]
    @test thrown(() -> model["no.such"]) isa Gangway.NotFound
    @test refused(() -> Gangway.local_array(weight, :values), "part is :values", ":full_value")
    @test refused(() -> Gangway.assign!(weight, permutedims(w)), "2", "3")
end

fact("manual forward and backward give the gradients of the plain formula") do
    model = parallelize!(Linear(3, 2; bias = false); seed = 5)
    weight = only(Gangway.parameters(model))
    w, x, e = copy(Gangway.gathered(weight)), randn(Float32, 3, 4), randn(Float32, 2, 4)
    frame = Gangway.Frame(model)
    y, = Gangway.forward(model, x; frame = frame)
    dx, = Gangway.backward(model, frame, e)
    @test y ≈ w' * x && dx ≈ w * e
    @test Gangway.gathered_gradient(weight) ≈ x * e'
    norm = clip_grad_norm!(model, 1e-3)
    @test norm ≈ sqrt(sum(abs2, x * e'))
    zero_grad!(model)
    @test clip_grad_norm!(model, 1) == 0
    Gangway.reset!(frame)
    @test thrown(() -> Gangway.backward(model, frame, e)) isa Gangway.GangwayError
end

fact("layers are put together, wrapped one by one, frozen, recomputed") do
    model = Sequential(Linear(4, 8; bias = false), RMSNorm(8), Mlp(8, 16), Linear(8, 4), LayerNorm(4), Activate(:gelu),
                       FeedForward(dim = 4, ffn = 8, activation = :gelu_tanh, plain = true), Dropout(0))
    freeze!(model, "1.weight")
    for group in ("0", "2", "")
        fully_shard!(model, group; strategy = :shard_grad_op)
    end
    materialize!(model; seed = 2)
    @test !Gangway.describe(model["1.weight"]).trainable
    @test size(Gangway.forward(model, ones(Float32, 4, 3))[1]) == (4, 3)
    @test refused(() -> parallelize!(Linear(2, 2); reshard_after_forward = 2), "2, which is no factor of the 1 ranks")
    attention = parallelize!(Attention(; dim = 8, heads = 2))
    @test size(Gangway.forward(attention, ones(Float32, 8, 5, 2))[1]) == (8, 5, 2)
    block = materialize!(replicate!(Block(16; dim = 8, heads = 2)))
    @test size(Gangway.forward(block, ones(Float32, 8, 5, 2))[1]) == (8, 5, 2)
    embedding = parallelize!(Embedding(10, 4))
    @test Gangway.forward(embedding, [3])[1] ≈ Gangway.gathered(embedding["weight"])[:, 4:4]
    llama = recompute!(Llama(dim = 16, layers = 2, heads = 2), :every; every = 2)
    parallelize!(llama)
    Gangway.no_sync!(llama)
    Gangway.no_sync!(llama, false)
    @test thrown(() -> recompute!(Llama(), :some)) isa ArgumentError
end

fact("a saved model is loaded") do
    mktempdir() do folder
        model = parallelize!(Llama(dim = 16, layers = 1, heads = 2); seed = 1)
        Gangway.save(model, folder)
        other = Gangway.load!(parallelize!(Llama(dim = 16, layers = 1, heads = 2); seed = 2), folder)
        for (a, b) in zip(Gangway.parameters(model), Gangway.parameters(other))
            @test Gangway.gathered(a) == Gangway.gathered(b)
        end
    end
end

fact("a preset is saved in the keys of its family") do
    for (preset, family) in ((Llama, "llama"), (Mistral, "mistral"), (Qwen2, "qwen2"), (Qwen3, "qwen3"),
                             (Gemma, "gemma"), (Gemma2, "gemma2"), (Gemma3, "gemma3_text"), (Olmo2, "olmo2"),
                             (GPT2, "gpt2"), (Phi3, "phi3"))
        mktempdir() do folder
            Gangway.save(parallelize!(preset(vocab = 16, dim = 16, layers = 1, heads = 2)), folder)
            @test decoder_options(folder).family == family
            @test Decoder(; decoder_options(folder)...) isa Gangway.Model
        end
    end
    @test refused(() -> Decoder(family = "gpt5"), "\"gpt5\" is unknown"; kind = Gangway.NotSupported)
end

fact("a folder of Hugging Face is a model in one call") do
    folder = joinpath(ENV["GANGWAY_TEST_DATA"], "folders", "qwen2_f16_tied")
    found = decoder_options(folder)
    @test (found.vocab, found.dim, found.heads, found.kv_heads) == (19, 24, 4, 2)
    @test (found.rope_theta, found.eps, found.qkv_bias, found.out_bias, found.tied) == (20000.0, 1e-6, 1, 0, 1)
    model = from_pretrained(folder; master_dtype = Float64)
    # The values themselves, as the file holds them behind its header.
    bytes = read(joinpath(folder, "model.safetensors"))
    start = 8 + Int(reinterpret(UInt64, bytes[1:8])[1])
    header = String(bytes[9:start])
    first, last = parse.(Int, match(r"\"model.norm.weight\".*?\[(\d+),(\d+)\]", header).captures)
    @test Gangway.gathered(model["model.norm.weight"]) == reinterpret(Float16, bytes[start+first+1:start+last])
    other = Gangway.load!(parallelize!(Decoder(; decoder_options(folder)...); master_dtype = Float64), folder)
    tokens = reshape(Int64.(0:15), 8, 2)
    @test Gangway.forward(model, tokens) == Gangway.forward(other, tokens)
    changed = parallelize!(Decoder(; decoder_options(folder)..., rope_theta = 1e4))
    e = thrown(() -> Gangway.load!(changed, folder))
    @test e isa Gangway.InvalidArgument && occursin("rope_theta = 20000.0, but the model has 10000.0", e.message)
    Gangway.load!(changed, folder; ignore_config = 1)
    e = thrown(() -> from_pretrained("/no/such/folder"))
    @test e isa Gangway.IOFailed && e.errnum == Libc.ENOENT && e.path == "/no/such/folder/config.json"
    @test thrown(() -> Gangway.load!(model, "/no/such/file")).path == "/no/such/file"
end

# loss = sum(tanh.(x) .* w) as a training root, with what each callback saw.
function scaled_tanh(seen = Symbol[]; failing = :none)
    at(phase) = (push!(seen, phase); failing === phase && throw(DomainError(phase, "my own")); nothing)
    return Custom(; name = "tanh", outputs = 2, parameters = [Parameter("w", (3,); kind = :ones)],
        shapes = inputs -> (at(:shapes); @assert(inputs[1] == (Float32, (3, 4))); [(Float64, (1,)), (Float64, (1,))]),
        forward = call -> begin
            at(:forward)
            t = tanh.(call.inputs[1])
            call.outputs[1][1] = sum(call.parameters[1] .* t)
            call.outputs[2][1] = 4
            call.state = t
        end,
        backward_input = call -> begin
            at(:backward_input)
            dx = call.input_grads[1]
            dx === nothing || (dx .= call.loss_scale .* call.parameters[1] .* (1 .- call.state .^ 2))
        end,
        backward_weight = call -> begin
            at(:backward_weight)
            call.parameter_grads[1] .+= call.loss_scale .* vec(sum(call.state; dims = 2))
        end)
end

fact("a module of Julia closures gives loss and gradients"; on_host = "its closures compute in Julia") do
    seen = Symbol[]
    model = parallelize!(scaled_tanh(seen))
    x = Float32[0.1i - 0.2j for i in 1:3, j in 1:4]
    opt = SGD(model; lr = 1)
    result = train_step!(model, opt, x; weight = 4)
    @test result.loss ≈ sum(tanh.(x)) / 4
    @test Gangway.gathered(model["w"]) ≈ 1 .- vec(sum(tanh.(x); dims = 2)) ./ 4
    @test first(seen) === :shapes
    @test filter(!=(:shapes), seen) == [:forward, :backward_input, :backward_weight]
    @test Gangway.eval_step(model, x; weight = 4).loss isa Float64
    model = opt = nothing
    @test collect_all() <= 4
end

fact("an own optimizer steps as SGD does"; on_host = "its closure computes in Julia") do
    x = Float32[0.1i - 0.2j for i in 1:3, j in 1:4]
    function momentum(call)
        @test call.name == "w"
        velocity = call.states.velocity
        velocity .= call.gradient .+ (call.step > 1 ? 0.5f0 : 0.0f0) .* velocity
        call.value .-= Float32(call.lr) .* velocity
    end
    function trained(make)
        model = parallelize!(scaled_tanh(Symbol[]))
        opt = make(model)
        set_schedule!(step -> 1 / step, opt)
        foreach(_ -> train_step!(model, opt, x; weight = 4), 1:3)
        @test Gangway.learning_rate(opt) ≈ 0.125
        w = Gangway.gathered(model["w"])
        swap_ema!(opt)
        averages = Gangway.gathered(model["w"])
        swap_ema!(opt)
        @test Gangway.gathered(model["w"]) == w != averages
        return vcat(w, averages)
    end
    own = trained(model -> CustomOptimizer(momentum, model; states = (:velocity,), lr = 0.5, ema_decay = 0.5))
    @test own ≈ trained(model -> SGD(model; lr = 0.5, momentum = 0.5, ema_decay = 0.5))
    model = parallelize!(scaled_tanh(Symbol[]))
    opt = CustomOptimizer(call -> throw(DomainError(call.step)), model)
    e = thrown(() -> train_step!(model, opt, x; weight = 4))
    @test e isa DomainError && e.val == 1
    @test refused(() -> CustomOptimizer(momentum, model; states = ("m", "m")), "as another state is")
    @test refused(() -> CustomOptimizer(momentum, model; step = 3), "unknown keyword step")
end

# One output is NaN, and all gradients are numbers.
nan_loss() = Custom(; name = "nan", outputs = 2, parameters = [Parameter("w", ones(Float32, 3))],
    shapes = inputs -> [(Float64, (1,)), (Float64, (1,))],
    forward = call -> (call.outputs[1][1] = NaN; call.outputs[2][1] = 4),
    backward_input = call -> (dx = call.input_grads[1]; dx === nothing || (dx .= 0)),
    backward_weight = call -> (call.parameter_grads[1] .+= 1))

fact("what cannot be learned from is skipped and said"; on_host = "its closures compute in Julia") do
    model = parallelize!(nan_loss())
    opt = SGD(model; lr = 1)
    result = train_step!(model, opt, ones(Float32, 3, 4); weight = 4)
    @test isnan(result.loss) && result.skipped && result.skip_reason === :non_finite && Gangway.steps(opt) == 0
    @test Gangway.gathered(model["w"]) == ones(3)
    result = train_step!(model, opt, ones(Float32, 3, 4); weight = 0)
    @test isnan(result.loss) && result.skipped && result.skip_reason === :no_weight
    @test refused(() -> clip_grad_norm!(model, 1; p = 65), "65"; kind = Gangway.InvalidArgument)
    @test refused(() -> step!(opt; norm_type = 65, max_grad_norm = 1), "norm_type", "65"; kind = Gangway.InvalidArgument)
end

fact("texts say what is wrong and what to do") do
    model = parallelize!(Llama(dim = 16, layers = 1, heads = 2))
    @test refused(() -> parallelize!(model), "parallelize"; kind = Gangway.InvalidState)
    tokens = ones(Int32, 8, 2)
    @test refused(() -> Gangway.forward(model, tokens), "tokens are i32 [2, 8], wanted i64"; kind = Gangway.InvalidArgument)
    @test refused(() -> eval_step(model, Int64.(tokens), tokens), "targets[0] is i32, but labels are i64")
    @test refused(() -> Llama(dim = -4), "dim is -4, but must be 1 or more"; kind = Gangway.InvalidArgument)
    @test refused(() -> generate(model, [1]; token_count = -4), "token_count", "-4"; kind = Gangway.InvalidArgument)
    @test length(generate(model, [1]; token_count = 3)) == 3
    opt = SGD(model)
    Gangway.release!(opt)
    for use in (() -> Gangway.steps(opt), () -> step!(opt), () -> train_step!(model, opt, Int64.(tokens)))
        @test refused(use, "the Optimizer was released"; kind = Gangway.InvalidState)
    end
end

fact("models iterate, count their elements, and say what they are") do
    model = parallelize!(Linear(3, 4))
    @test [Gangway.describe(p).name for p in model] == ["weight", "bias"] && length(model) == length(parameters(model)) == 2
    @test Gangway.num_parameters(model) == 16
    @test repr(model) == "Model(2 parameters, 16 elements)"
    @test startswith(repr(model["weight"]), "Param(weight, 3x4 Float32")
    opt = SGD(model; lr = 0.5)
    @test repr(opt) == "Optimizer(learning rate 0.5, 0 steps)"
    group = ShardGroup(nothing, "g", "w" => (2,), "b" => (1,))
    @test repr(group) == "ShardGroup(g: w, b)" && length(group) == 2
    gangs = Gangway.init()
    @test repr(gangs) == "Gangs(one rank; rank 0 of 1)"
    @test repr(Gangway.barrier_async(gangs.root)) == "Work(done)"
    @test repr(Gangway.Frame(model)) == "Frame" && occursin("3-element", repr(Gangway.Tensor(ones(3))))
    Gangway.release!(opt, model)
    @test (repr(opt), repr(model)) == ("released Optimizer", "released Model")
    Gangway.shutdown(gangs)
end

fact("a tuple of integers is dims, an array is first values"; on_host = "it reads and writes a group's memory in Julia") do
    w = Float32[1 2 3; 4 5 6]
    group = ShardGroup(nothing, "g", "b" => zeros(Float32, 3), "w" => w, "d" => [1.5, 2.5], "n" => 1:4, "one" => (2, 2), "m" => 5)
    b, found, d, n, one, m = unshard!(group)
    @test b == zeros(3) && found == w && d == [1.5, 2.5] && eltype(d) === Float64 && n == 1:4 && eltype(n) === Float32
    @test size(one) == (2, 2) && any(!=(0), one) && size(m) == (5,)
    reshard!(group)
    w .= 0 # what was given is the caller's again
    @test unshard!(group)[2][2, 3] == 6
    reshard!(group)
    @test refused(() -> ShardGroup(nothing, "g", "w" => (2.5, 3)), "w is (2.5, 3); a tuple of integers is its dims")
    @test refused(() -> ShardGroup(nothing, "g", "w" => ["a"]), "w is an array of String, not of numbers")
    @test refused(() -> Gangway.assign!(Model(group)["g.d"], [1, 2]), "i64")
end

fact("what a callback throws comes out as itself"; on_host = "its closures compute in Julia") do
    x = ones(Float32, 3, 4)
    for phase in (:shapes, :forward, :backward_input, :backward_weight)
        model = parallelize!(scaled_tanh(; failing = phase))
        e = thrown(() -> train_step!(model, SGD(model), x; weight = 4))
        @test e isa DomainError && e.val === phase
        @test all(isnothing, Gangway.THROWN)
    end
    refusing = plain_custom(; parameters = ["w" => (2,)], accepts = T -> error("not $T"))
    @test refused(() -> parallelize!(refusing), "not Float32"; kind = ErrorException)
    picky = plain_custom(; parameters = ["w" => (2,)], accepts = T -> T === Float64)
    @test thrown(() -> parallelize!(picky)) isa Gangway.GangwayError
    filled = plain_custom(; parameters = [Parameter("w", (2, 3); fill = (a, b, out) -> error("no fill"))])
    @test refused(() -> parallelize!(filled), "no fill"; kind = ErrorException)
end

fact("what a callback threw and the library got over does not come out of a later call") do
    Gangway.remember(ErrorException("long ago"))
    barrier(ONE)
    @test thrown(() -> bcast!(ONE, [1.0]; root = 7)) isa Gangway.InvalidArgument
    # A callback's own calls that succeed leave what another callback of the same call threw.
    Gangway.remember(ErrorException("just now"))
    Base.disable_sigint(() -> Gangway.guarded(() -> barrier(ONE))) # as inside of a call
    @test thrown(() -> Gangway.fail(LibGangway.GW_E_CALLER)).msg == "just now"
    @test all(isnothing, Gangway.THROWN)
end

fact("a callback can write its outputs and gradients, and nothing that it only reads"; on_host = "its closures compute in Julia") do
    writable = Dict{Tuple{Symbol,Symbol},Bool}()
    function look(phase, call)
        for name in Gangway.CALL_ARRAYS, x in getproperty(call, name)
            x === nothing && continue
            e = thrown(() -> x[1] = x[1])
            @assert e === nothing || e isa ReadOnlyMemoryError
            writable[(phase, name)] = e === nothing
        end
        return nothing
    end
    parent = Custom(; shapes = identity, parameters = ["w" => (2,)], children = ["child" => plain_custom()],
        forward = call -> begin
            look(:forward, call)
            y, = Gangway.run_child(call, 1, call.inputs[1])
            @assert thrown(() -> y[1] = 1) isa ReadOnlyMemoryError
            copyto!(call.outputs[1], y)
        end,
        backward_input = call -> (look(:input, call); copyto!(call.input_grads[1], call.output_grads[1])),
        backward_weight = call -> look(:weight, call))
    model = parallelize!(parent)
    frame = Gangway.Frame(model)
    Gangway.forward(model, Float32[1, 2]; frame = frame)
    Gangway.backward(model, frame, Float32[1, 2])
    for ((phase, name), written) in writable
        @test written == (name in (:input_grads, :parameter_grads) || (phase, name) == (:forward, :outputs))
    end
    for seen in ((:forward, :inputs), (:forward, :parameters), (:input, :inputs), (:input, :output_grads),
                 (:input, :input_grads), (:weight, :parameter_grads))
        @test haskey(writable, seen)
    end
end

fact("a call that outlives its callback is refused"; on_host = "its closures compute in Julia") do
    kept = Ref{Any}(nothing)
    model = parallelize!(Custom(; shapes = identity, backward_input = identity, forward = call -> begin
        kept[] = call
        copyto!(call.outputs[1], call.inputs[1])
    end))
    Gangway.forward(model, [1.0f0])
    for late in (() -> kept[].inputs, () -> kept[].step, () -> (kept[].state = 1), () -> Gangway.run_child(kept[], 1))
        @test refused(late, "this call is over"; kind = ArgumentError)
    end
end

fact("values are writable in the block of an update and nowhere else"; on_host = "it reads and writes a group's memory in Julia") do
    group = ShardGroup(nothing, "g", Parameter("w", (2, 3); kind = :ones), Parameter("b", (4,); kind = :zeros))
    before, kept = Gangway.local_array(group, 1), Any[]
    @test thrown(() -> (before[1] = 2)) isa ReadOnlyMemoryError
    @test refused(() -> allreduce!(ONE, before), "allreduce!: output is read-only"; kind = ArgumentError)
    Gangway.update!(group) do w, b
        w .= 5
        again = Gangway.local_array(group, 2)
        again .= 6
        @test thrown(() -> (before[1] = 2)) isa ReadOnlyMemoryError
        append!(kept, (w, b, again))
    end
    @test all(x -> thrown(() -> (x[1] = 2)) isa ReadOnlyMemoryError, kept)
    @test all(==(5), Gangway.local_array(group, 1)) && all(==(6), Gangway.local_array(group, 2))
    @test thrown(() -> Gangway.update!((w, b) -> (push!(kept, w); error("inside")), group)) isa ErrorException
    @test thrown(() -> (last(kept)[1] = 2)) isa ReadOnlyMemoryError
    model = Model(group)
    weight = first(Gangway.parameters(model))
    @test thrown(() -> (Gangway.local_array(weight)[1] = 2)) isa ReadOnlyMemoryError
    gradient = Gangway.local_array(weight, :gradient)
    gradient .= 7
    @test all(==(7), Gangway.local_array(group, 1, :gradient))
end

plain_custom_with(shapes) = Custom(; shapes = shapes, forward = identity, backward_input = identity)

fact("a call knows its facts, and a wrong name or a wrong shape is refused"; on_host = "its closures compute in Julia") do
    found = Ref{Any}(nothing)
    model = Custom(; shapes = identity, backward_input = identity, forward = call -> begin
        found[] = (call.training, call.recomputing, call.microbatch, call.step, call.seed, call.gangs, call.state)
        @test refused(() -> call.outpus, "no outpus", "output_grads")
        @test refused(() -> (call.inputs = 1), "cannot be set")
        copyto!(call.outputs[1], call.inputs[1])
    end)
    parallelize!(model)
    @test Gangway.forward(model, [1.0f0, 2])[1] == [1, 2]
    @test found[][1] === false && found[][2] === false && found[][7] === nothing
    wrong = parallelize!(plain_custom_with(inputs -> [(Float32, (1,)), (Float32, (1,))]))
    @test refused(() -> Gangway.forward(wrong, [1.0f0]), "shapes gave 2 outputs"; kind = ArgumentError)
    wrong = parallelize!(plain_custom_with(inputs -> [(String, (1,))]))
    @test refused(() -> Gangway.forward(wrong, [1.0f0]), "elements of String"; kind = ArgumentError)
end
fact("a custom module runs its children forward and backward"; on_host = "its closures compute in Julia") do
    inner = Linear(3, 3; bias = false)
    model = Custom(; name = "twice", children = ["inner" => inner], shapes = identity,
                   forward = call -> copyto!(call.outputs[1], 2 .* Gangway.run_child(call, 1, call.inputs[1])[1]),
                   backward_input = call -> begin
                       dx, = Gangway.run_child_backward(call, 1, 2 .* call.output_grads[1])
                       call.input_grads[1] === nothing || copyto!(call.input_grads[1], dx)
                   end)
    parallelize!(model; seed = 4)
    weight = model["inner.weight"]
    w, x, e = copy(Gangway.gathered(weight)), randn(Float32, 3, 2), randn(Float32, 3, 2)
    frame = Gangway.Frame(model)
    y, = Gangway.forward(model, x; frame = frame)
    @test y ≈ 2 .* (w' * x)
    Gangway.backward(model, frame, e)
    @test Gangway.gathered_gradient(weight) ≈ 2 .* (x * e')
end

fact("a shard group is filled, unsharded, updated, reduced, stepped"; on_host = "it reads and writes a group's memory in Julia") do
    rows = Tuple{Int,Int}[]
    fill = (first, last, out) -> (push!(rows, (first, last)); for r in first:last; out[:, r-first+1] .= r; end)
    group = ShardGroup(nothing, "g", Parameter("w", (2, 4); fill = fill), Parameter("b", (3,); kind = :zeros))
    whole = zeros(Float32, 2, 4), zeros(Float32, 3)
    unshard!(group, whole)
    @test whole[1] == [r for _ in 1:2, r in 1:4] && whole[2] == zeros(3) && !isempty(rows)
    reshard!(group)
    work = Gangway.unshard_async!(group)
    wait(work)
    @test unshard!(group)[1] == whole[1]
    add_gradients!(group, ones(Float32, 2, 4), nothing)
    @test refused(() -> add_gradients!(group, ones(2)), "1 gradients, the group has 2")
    Gangway.local_array(group, 2, :full_gradient) .+= 2
    reshard!(group)
    reduce!(group)
    @test Gangway.local_array(group, 1, :gradient) == ones(2, 4)
    Gangway.update!(group) do w, b
        w .-= Gangway.local_array(group, 1, :gradient)
        b .-= 2
    end
    @test unshard!((w, b) -> (sum(w), sum(b)), group) == (sum(whole[1]) - 8, -6)
    model = Model(group)
    unshard!(group) do w, b
        add_gradients!(group, w, b)
    end
    reduce!(group)
    @test step!(SGD(model; lr = 1.0); scale = 0.5, max_grad_norm = 0).step == 1
    @test unshard!((w, b) -> (sum(w), sum(b)), group) == ((sum(whole[1]) - 8) / 2, -3)
    @test refused(() -> ShardGroup(nothing, "g", "w" => (2,); shards = 3), "unknown keyword shards", "prefetch_forward")
end

fact("adapters train, are saved and loaded, switched off and merged") do
    folder = mktempdir()
    small() = Llama(dim = 16, layers = 2, heads = 2, vocab = 32)
    model = parallelize!(lora_apply!(small(); patterns = ["**.q_proj", "**.v_proj"], rank = 2, alpha = 4); seed = 3)
    opt = SGD(model; lr = 0.5)
    tokens = Int64[mod(7i + 5j, 32) for i in 1:8, j in 1:4]
    base = Gangway.eval_step(model, tokens).loss
    foreach(_ -> train_step!(model, opt, tokens), 1:3)
    trained = Gangway.eval_step(model, tokens).loss
    @test trained < base
    @test Gangway.eval_step(lora_enable!(model, false), tokens).loss == base
    @test Gangway.eval_step(lora_enable!(model), tokens).loss == trained
    lora_save(model, folder)
    again = parallelize!(lora_apply_folder!(small(), folder); seed = 3)
    @test Gangway.eval_step(lora_load!(again, folder), tokens).loss == trained
    @test thrown(() -> save(model, folder)) isa Gangway.InvalidState
    save(lora_merge!(model), folder)
    @test Gangway.eval_step(model, tokens).loss ≈ trained rtol = 1e-5
    @test thrown(() -> lora_apply!(small(); patterns = "**.x_proj")) isa Gangway.NotFound
end

fact("linear layers compute in FP8") do
    tokens = Int64[mod(7i + 5j, 32) for i in 1:8, j in 1:4]
    small() = Llama(dim = 16, layers = 2, heads = 2, vocab = 32)
    plain = Gangway.eval_step(parallelize!(small(); seed = 3), tokens).loss
    for scaling in (:tensor, :delayed, :row)
        model = parallelize!(fp8_apply!(small(); patterns = ["model.layers.*.mlp.*"], scaling); seed = 3)
        rounded = Gangway.eval_step(model, tokens).loss
        @test rounded != plain && isapprox(rounded, plain; rtol = 0.05)
    end
    @test thrown(() -> fp8_apply!(small(); patterns = "**.x_proj")) isa Gangway.NotFound
end

fact("a step over a mesh is verified against one rank") do
    tokens = Int64[mod(7i + 5j, 32) for i in 1:8, j in 1:4]
    built() = Llama(dim = 16, layers = 2, heads = 2, vocab = 32)
    found = verify(built, tokens; strategy = :no_shard)
    @test found.loss ≈ found.mesh_loss && found.parameters == 21 && found.differing == 0
    layers = Ref(0)
    @test refused(() -> verify(() -> Llama(dim = 16, layers = (layers[] += 1), heads = 2, vocab = 32), tokens),
                  "built another model the second time")
    @test thrown(() -> verify(() -> error("no model"), tokens)) isa ErrorException
end
