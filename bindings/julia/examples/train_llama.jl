# Trains a byte-level Llama on a text, sharded over the ranks, and writes a sample and the model.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/train_llama.jl TEXT [FOLDER] [STEPS]
using Gangway, Random

const SEQUENCE, ROWS = 64, 8

# This rank's columns of the step's batch, which depends on nothing but the step: every mesh sees the same text.
function batch(bytes, step, shard)
    rng = MersenneTwister(step)
    starts = rand(rng, 1:length(bytes)-SEQUENCE, ROWS)
    mine = starts[shard.index+1:shard.count:end]
    return Int64[bytes[start+i] for i in 0:SEQUENCE-1, start in mine]
end

function main(text, folder = "train-out", steps = "200")
    bytes, count = read(text), parse(Int, steps)
    Gangway.init() do gangs
        model = parallelize!(Llama(dim = 128, layers = 2, heads = 4), gangs; strategy = :full_shard, seed = 1)
        opt = AdamW(model; lr = 3f-3, schedule = :cosine, warmup_steps = min(10, count - 1), total_steps = count)
        talks = Gangway.rank(gangs.root) == 0
        shard = Gangway.data_shard(gangs)
        losses = Float64[]
        for step in 1:count
            tokens = batch(bytes, step, shard)
            # The labels are the tokens: the library shifts them.
            result = train_step!(model, opt, tokens, tokens; max_grad_norm = 1)
            push!(losses, result.loss)
            talks && (step % 20 == 0 || step == count) &&
                println("step $step/$count  loss ", round(result.loss; digits = 3), "  ",
                        round(Int, result.tokens_per_second), " tokens/s")
        end
        sample = generate(model, collect(codeunits("The ")); token_count = 60, temperature = 0.8, top_k = 40, seed = 1)
        talks && println("sample: The ", String(UInt8.(sample)))
        talks && mkpath(folder)
        barrier(gangs.root)
        Gangway.save(model, folder)
        @assert count == 1 || last(losses) < first(losses)
    end
end

isempty(ARGS) ? error("usage: train_llama.jl TEXT [FOLDER] [STEPS]") : main(ARGS...)
