# Tensor and context parallelism: plans as text and as rows, of the caller and of a custom module, call by call.

const PLAN = "0 -> colwise\n1 -> rowwise"
const PLAN_ROWS = ["0" => :colwise, (pattern = "1", style = :rowwise, input = :shard, input_dim = -1, output = :replicate)]

two_linears() = (Linear(6, 8), Linear(8, 6))
chained(; plan = nothing) = Custom(; children = map(Pair, ("0", "1"), two_linears()), parallel_plan = plan,
    shapes = identity,
    forward = call -> call.outputs[1] .= Gangway.run_child(call, 2, Gangway.run_child(call, 1, call.inputs[1])[1])[1],
    backward_input = call -> begin
        middle, = Gangway.run_child_backward(call, 2, call.output_grads[1])
        dx, = Gangway.run_child_backward(call, 1, middle)
        call.input_grads[1] === nothing || (call.input_grads[1] .= dx)
    end)

# The values after three steps.
function trained_manually(model)
    opt = SGD(model; lr = 0.1)
    for step in 1:3
        frame = Gangway.Frame(model)
        x = reshape(sin.((1:24) .+ step), 6, 1, 4)
        y, = Gangway.forward(model, x; frame = frame)
        Gangway.backward(model, frame, y .- x)
        step!(opt)
    end
    return map(p -> copy(Gangway.gathered(p)), Gangway.parameters(model))
end

fact("a plan trains the same as text, as rows, of a custom module and call by call") do
    gangs = Gangway.parallel_gangs(GANG; tp = iseven(RANKS) ? 2 : 1)
    by_pieces(model; keywords...) = materialize!(
        fully_shard!(recompute!(tensor_parallel!(model, gangs; keywords...), :full), ""); seed = 5, master_dtype = Float64)
    whole(model; keywords...) = parallelize!(model, gangs; seed = 5, master_dtype = Float64, keywords...)
    model = whole(Sequential(two_linears()...); plan = PLAN)
    wanted = trained_manually(model)
    iseven(RANKS) && @test startswith(Gangway.describe(model["1.weight"]).layout, "tp: Shard(1)")
    @test trained_manually(whole(Sequential(two_linears()...); rows = PLAN_ROWS)) == wanted
    for make in (whole, by_pieces)
        DEVICE == "cpu" || continue # Julia's closures compute on the host
        @test trained_manually(make(chained(; plan = PLAN))) == wanted
    end
    @test trained_manually(by_pieces(Sequential(two_linears()...); rows = PLAN_ROWS)) == wanted
end

fact("what does not fit in a plan is told, and calls out of order name the call that comes first") do
    fake = Gangway.parallel_gangs(Gangway.fake_gang(0, 2); tp = 2)
    model = Sequential(two_linears()...)
    @test refused(() -> tensor_parallel!(model, fake; plan = "0 -> up"), "plan line 1", "0 -> up")
    @test refused(() -> tensor_parallel!(model, fake; plan = PLAN, overlap_chunks = 2), "overlap_chunks is 2, but no row")
    @test refused(() -> tensor_parallel!(model, fake; rows = ["0" => :up]), "style is :up", ":colwise")
    @test refused(() -> tensor_parallel!(model, fake; rows = ["7" => :colwise]), "7 -> colwise"; kind = Gangway.NotFound)
    @test refused(() -> fully_shard!(model, "", fake), "tensor_parallel comes first"; kind = Gangway.InvalidState)
    @test refused(() -> context_parallel!(model, fake), "holds no attention")
    @test refused(() -> context_parallel!(model, fake; method = :star), "star", ":ring")
    @test refused(() -> chained(; plan = "0 -> up"), "options.parallel_plan")
end
