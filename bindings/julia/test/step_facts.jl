# Steps that say more than a loss, and text out of prompts, on one rank.

fact("a step with shard groups is verified") do
    function step(gangs)
        group = ShardGroup(gangs, "g", Parameter("w", [0.5, -1.0]))
        y = unshard!(group) do w
            add_gradients!(group, w)
            sum(abs2, w) / 2
        end
        reduce!(group)
        return y, Model(group)
    end
    found = verify_groups(step)
    @test found.loss == found.mesh_loss == 0.625 && found.parameters == 1 && found.differing == 0
    @test thrown(() -> verify_groups(gangs -> error("no rows"))) isa ErrorException
end

fact("a step takes weights of labels, and gives log-probabilities and norms of gradients") do
    model = parallelize!(Llama(dim = 16, layers = 1, heads = 2, vocab = 32); seed = 3, master_dtype = Float64)
    opt = SGD(model; lr = 0.01)
    tokens = Int64[mod(7i + 5j, 32) for i in 1:8, j in 1:4]
    labels = circshift(tokens, -1)
    labels[1, 2] = -100
    plain = eval_step(model, tokens, labels)
    chances = log_probs(model, tokens, labels; microbatches = 2)
    @test size(chances) == size(labels) && chances[1, 2] == 0
    @test plain.loss ≈ -sum(chances) / 31 && plain.weight_sum == 31
    weights = Float64[i / 8 for i in 1:8, j in 1:4]
    counted = weights .* (labels .!= -100)
    weighted = eval_step(model, tokens, labels; token_weights = weights)
    @test weighted.loss ≈ -sum(counted .* chances) / sum(counted) && weighted.weight_sum ≈ sum(counted)
    @test eval_step(model, tokens, labels; label_smoothing = 0.1).loss != plain.loss
    @test eval_step(model, tokens, labels; z_loss = 0.1).loss > plain.loss
    @test refused(() -> eval_step(model, tokens, labels; token_weights = (weights, weights)), "token_weights is 2 arrays")
    @test thrown(() -> Gangway.gradient_norms(model)) isa Gangway.InvalidState
    result = train_step!(model, opt, tokens, labels; max_grad_norm = 1, replay = true, gradient_norms = true)
    norms = Gangway.gradient_norms(model)
    @test length(norms) == length(parameters(model)) && sqrt(sum(abs2, values(norms))) ≈ result.grad_norm
end

fact("several prompts are continued at once, up to a stop token") do
    model = parallelize!(Llama(dim = 16, layers = 1, heads = 2, vocab = 32, initializer_range = 0.3); seed = 3)
    prompts = [[3, 1, 4, 1, 5], [9], [2, 6]]
    together = generate(model, prompts; token_count = 6, temperature = 0)
    @test together == [generate(model, prompt; token_count = 6, temperature = 0) for prompt in prompts]
    stop = together[1][2]
    stopped = generate(model, prompts; token_count = 6, temperature = 0, stop_tokens = [stop])
    @test stopped[1] == together[1][1:findfirst(==(stop), together[1])]
    sampled = (; token_count = 6, seed = 5, top_k = 8, top_p = 0.9, min_p = 0.01, repetition_penalty = 1.2)
    @test generate(model, prompts; sampled...) == generate(model, prompts; sampled...)
    @test refused(() -> generate(model, prompts; top_p = 2), "top_p = 2")
end
