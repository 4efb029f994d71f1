# Facts of a run: data, metrics, optimizers by name, plans of memory, checkpoints.

fact("a dataset gives the batches of a training, and goes on from its place") do
    file = joinpath(mktempdir(), "a.u8")
    write(file, UInt8[7i % 50 for i in 0:400])
    data = Dataset(file; sequence = 8, seed = 3, vocab_size = 50)
    @test rows_per_epoch(data) == 50
    first = Gangway.next!(data; global_batch = 6)
    @test first.rows == first.rank_rows == 0:5 && first.label_count == 48 && first.documents === nothing
    @test size(first.tokens) == (8, 6) && all((first.tokens .+ 7) .% 50 .== first.labels)
    model = parallelize!(Llama(vocab = 50, dim = 16, layers = 1, heads = 2))
    opt = AdamW(model)
    losses = [train_step!(model, opt, Gangway.next!(data; global_batch = 6)).loss for _ in 1:3]
    @test all(isfinite, losses) && eval_step(model, Gangway.next!(data; global_batch = 6)).weight == 48
    @test isempty(first.tokens) # its loan is over
    @test rows_taken(data) == 30 && batches_taken(data) == 5
    other = Dataset([file]; sequence = 8, seed = 3, weights = [2])
    restore!(other, position(data))
    @test Gangway.next!(other; global_batch = 4).tokens == Gangway.next!(data; global_batch = 4).tokens
    @test refused(() -> restore!(Dataset(file; sequence = 4, seed = 3), position(data)), "sequence was 8 and is 4"; kind = Gangway.Mismatch)
    @test refused(() -> Dataset(file; weights = [1, 2]), "weights has 2 numbers, paths 1"; kind = ArgumentError)
    write(file, UInt8[1, 2, 0, 3, 0])
    packed = Dataset(file; sequence = 6, packing = :documents, document_end = 0, shuffle = false)
    @test vec(Gangway.next!(packed; global_batch = 1).documents) == [0, 0, 0, 1, 1, -1]
    rows_taken!(packed, 0)
    batch = Gangway.next!(packed; global_batch = 1)
    inside = eval_step(model, batch).loss
    @test eval_step(model, batch.tokens, batch.labels; documents = batch.documents).loss == inside
    @test eval_step(model, batch.tokens, batch.labels).loss != inside
    @test eval_step(model, batch.tokens; documents = batch.documents, positions = fill(7, 6, 1)).loss != inside
    @test refused(() -> eval_step(model, batch.tokens; documents = reshape([0, 1, 0, 0, 0, 0], 6, 1)), "document 0 comes again at token 2")
    Gangway.release!(packed)
    @test repr(packed) == "released Dataset"
end

fact("every nth step gives a row of metrics, in files too, and a place continues them") do
    model = parallelize!(Llama(dim = 8, layers = 1, heads = 2, ffn = 16, vocab = 22); seed = 1)
    opt, batch = AdamW(model; lr = 0.01), Int64[mod(3i + j, 22) for i in 1:6, j in 1:2]
    results = [train_step!(model, opt, batch; max_grad_norm = 1, stop = n == 3) for n in 1:3]
    @test [r.tokens for r in results] == [12, 12, 12] && [r.stop for r in results] == [false, false, true]
    mktempdir() do folder
        json, svg = joinpath(folder, "m.jsonl"), joinpath(folder, "loss.svg")
        metrics = Metrics(model; json_lines = json, svg, every = 2, sequence = 6, peak_flops = 1e9)
        @test log!(metrics, results[1]; samples = 2, data_seconds = 0.5) === nothing
        log_evaluation!(metrics, 1.25, 2)
        row = log!(metrics, results[2]; samples = 2, data_seconds = 0.25)
        @test (row.step, row.samples, row.tokens, row.data_seconds, row.evaluate_seconds) == (2, 4, 24, 0.75, 2)
        @test row.loss == results[2].loss && row.validation_loss == 1.25 && row.mfu > 0 && row.memory > 0
        place = position(metrics)
        @test log!(metrics, results[3]) === nothing
        last = flush(metrics)
        @test last.step == 3 && isnan(last.validation_loss) && flush(metrics) === nothing
        @test countlines(json) == 2 && occursin("<svg", read(svg, String))
        restore!(metrics, place)
        @test countlines(json) == 1
        log!(metrics, results[3])
        @test flush(metrics).step == 3 && countlines(json) == 2
        @test refused(() -> restore!(metrics, "{}"), "the position has no number"; kind = Gangway.Corrupt)
        @test refused(() -> Metrics(model; every = 0), "every = 0 is below 1")
        @test refused(() -> Metrics(model; sink = 1), "unknown keyword sink", "json_lines")
        Gangway.release!(metrics)
        @test repr(metrics) == "released Metrics"
    end
end

fact("an optimizer has a name, and a plan gives the rank with the most memory") do
    small = (dim = 8, layers = 1, heads = 2, ffn = 16, vocab = 22)
    model = parallelize!(Llama(; small...))
    opt = Optimizer("adamw", model; lr = 0.5, schedule = :linear, total_steps = 10, moment_dtype = Float32)
    @test Gangway.learning_rate(opt) == Gangway.learning_rate(AdamW(model; lr = 0.5, schedule = :linear, total_steps = 10))
    Optimizer("sgd", model; momentum = 0.9, nesterov = true)
    @test refused(() -> Optimizer("adam", model), "adamw8bit")
    @test refused(() -> Optimizer("adamw", model; momentum = 0.9), "momentum")
    alone = plan_memory(small; sequence = 6, rows = 2)
    @test alone.rank == 0 && 0 < alone.memory.master < alone.memory.optimizer
    half = plan_memory(small; ranks = 2, mesh = (dp_shard = 2,), parallel = (recompute = :full,), sequence = 6, rows = 2)
    @test half.memory.master < alone.memory.master
    @test refused(() -> plan_memory((width = 3,)), "plan_memory: decoder: unknown keyword width")
    @test refused(() -> plan_memory(small; ranks = 0), "ranks is 0, below 1")
end

fact("a restored run has the losses of the undisturbed one") do
    begin_run(seed) = begin
        model = parallelize!(Llama(dim = 8, layers = 1, heads = 2, ffn = 16, vocab = 22); seed)
        (model, AdamW(model; lr = 0.01))
    end
    batch(number) = Int64[mod(5number + 3i + j, 22) for i in 1:6, j in 1:2]
    losses(model, opt, numbers) = [train_step!(model, opt, batch(n)).loss for n in numbers]
    mktempdir() do folder
        model, opt = begin_run(1)
        run = Checkpoints(folder; every = 2, keep = 1)
        @test restore!(run, model, opt) === nothing
        losses(model, opt, 1:2)
        @test due(run, 2) && !due(run, 3)
        save(run, model, opt; tokens = 24, texts = Dict("data" => "row 4"), user = UInt8[1, 0, 2])
        wanted = losses(model, opt, 3:4)
        wait(run)
        @test Gangway.buffer_bytes(run) > 0 && isdir(joinpath(folder, "step-00000002"))
        Gangway.release!(run)
        model, opt = begin_run(2)
        run = Checkpoints(folder)
        state = restore!(run, model, opt)
        @test (state.step, state.tokens, state.user) == (2, 24, [1, 0, 2])
        @test state.notes == ["seed: 1 in the checkpoint, 2 now"] && Gangway.text(run, "data") == "row 4"
        @test losses(model, opt, 3:4) == wanted
        @test thrown(() -> Gangway.text(run, "none")) isa Gangway.NotFound
        @test refused(() -> Checkpoints(folder; keep = -1), "keep = -1 is below 0")
        @test refused(() -> save(run, Dict("a/b" => model)), "a part's name is \"a/b\"")
        load!(opt, joinpath(folder, "step-00000002", "optimizer.safetensors"))
        Gangway.steps!(opt, 9)
        @test Gangway.steps(opt) == 9 && Gangway.base_learning_rate(opt) == 0.01 && Gangway.finite_steps(opt) == 0
        Gangway.restore_loss_scale!(opt, 4, 0)
        @test Gangway.loss_scale(opt) == 4
        Gangway.release!(run)
    end
end
