# Trains a byte-level Llama on a text, sharded over the ranks.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/train_llama.jl TEXT FOLDER [STEPS] [cpu|cuda]
using Gangway, Printf

const ROWS, SEQUENCE = 8, 64 # a batch of all ranks together

# Columns first+1 to last of a step's batch. Their places depend on step and column alone, so on no mesh.
function batch(text, step, first, last)
    starts = [UInt64(step * ROWS + row) * 0x9E3779B97F4A7C15 % (length(text) - SEQUENCE) for row in first:last-1]
    return Int64[text[start+i] for i in 1:SEQUENCE, start in starts]
end

function main(path, folder, steps = "200", device = "cpu")
    text, count = read(path), parse(Int, steps)
    Gangway.init(; device) do gangs
        model = parallelize!(Llama(dim = 64, layers = 4, heads = 4), gangs; strategy = :full_shard, seed = 1)
        opt = AdamW(model; lr = 3e-3)
        shard, shards = Gangway.data_shard(gangs) # which columns of the batch are this rank's
        first, last = ROWS * shard ÷ shards, ROWS * (shard + 1) ÷ shards
        for step in 1:count
            tokens = batch(text, step, first, last) # the labels are the tokens: the library shifts them
            result = train_step!(model, opt, tokens; max_grad_norm = 1)
            shard == 0 && (step == 1 || step % 20 == 0) &&
                @printf("step %d/%d  loss %.3f  %.0f tokens/s\n", step, count, result.loss, result.tokens_per_second)
        end
        sample = generate(model, codeunits("The "); token_count = 64, temperature = 0.8)
        shard == 0 && println("sample: The ", String(UInt8.(sample)))
        Gangway.save(model, folder) # Hugging Face's names, safetensors
    end
end

length(ARGS) < 2 ? error("usage: train_llama.jl TEXT FOLDER [STEPS] [cpu|cuda]") : main(ARGS...)
