# Trains a small Llama over tensor, pipeline and fully sharded data parallel ranks at once: 8 ranks are tp 2 x pp 2 x 2.
#   gangrun -n 8 julia --project=bindings/julia bindings/julia/examples/train_3d.jl [STEPS]
using Gangway, Printf

const VOCAB, SEQUENCE, ROWS, MICROBATCHES = 32, 32, 8, 2

# Columns first+1 to last of a step's batch: counting by a step of each column's own, the same in every language.
batch(step, first, last) = Int64[mod(i * (mod(row, 4) + 1) + row + step, VOCAB) for i in 0:SEQUENCE-1, row in first:last-1]

function main(steps = "40")
    Gangway.init(tp = 2, pp = 2) do gangs # dp_shard is what is left
        model = Llama(vocab = VOCAB, dim = 32, layers = 4, heads = 4, kv_heads = 2)
        parallelize!(model, gangs; strategy = :full_shard, seed = 1,    # over dp_shard
                     sequence_parallel = true, loss_parallel = true,    # over tp
                     pipeline = (schedule = "1f1b",), stage_split = :by_cost) # over pp
        opt = AdamW(model; lr = 1e-2)
        shard, shards = Gangway.data_shard(gangs) # the ranks of a data coordinate read the same columns
        loss = Inf
        for step in 1:parse(Int, steps)
            tokens = batch(step, ROWS * shard ÷ shards, ROWS * (shard + 1) ÷ shards)
            loss = train_step!(model, opt, tokens; microbatches = MICROBATCHES, max_grad_norm = 1).loss
            Gangway.rank(gangs.root) == 0 && (step == 1 || step % 10 == 0) && @printf("step %d  loss %.3f\n", step, loss)
        end
        @assert loss < 1
    end
end

main(ARGS...)
