# Evaluation and reload: the loss of a model on a text that it is not trained on, and the same loss of a model
# that is made of the saved folder.
#   gangrun -n 2 julia --project=bindings/julia bindings/julia/examples/evaluate.jl TEXT HELD_OUT_TEXT FOLDER
using Gangway, Printf

const BATCH, BATCHES = 8, 4

# The mean loss over the same rows at each call. It changes nothing of the model.
function evaluate(model, data, gangs)
    rows_taken!(data, 0)
    return foldl(+, eval_step(model, next!(data, gangs; global_batch = BATCH)).loss for _ in 1:BATCHES) / BATCHES
end

function main(text, held_out, folder)
    Gangway.init() do gangs
        model = parallelize!(Llama(dim = 32, layers = 2, heads = 2), gangs; seed = 1)
        opt = AdamW(model; lr = 3e-3)
        data = Dataset(text; format = "u8", sequence = 32, seed = 1) # a token is a byte
        validation = Dataset(held_out; format = "u8", sequence = 32, seed = 1)
        talks = Gangway.rank(gangs.root) == 0
        loss = 0.0
        for step in 1:20
            train_step!(model, opt, next!(data, gangs; global_batch = BATCH))
            step % 10 == 0 || continue
            loss = evaluate(model, validation, gangs)
            talks && @printf("step %d  validation loss %.6f\n", step, loss)
        end
        Gangway.save(model, folder) # Hugging Face's names, safetensors
        again = evaluate(from_pretrained(folder, gangs), validation, gangs)
        talks && @printf("reloaded  validation loss %.6f\n", again)
        @assert again == loss
    end
end

length(ARGS) == 3 ? main(ARGS...) : error("usage: evaluate.jl TEXT HELD_OUT_TEXT FOLDER")
