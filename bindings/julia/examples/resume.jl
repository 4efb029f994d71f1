# A run that outlives its ranks: every 5 steps it saves all that changes the next step. A program that is
# started again goes on from the newest checkpoint, with the losses of a run that was never stopped.
#   gangrun -n 2 --max-restarts 2 julia --project=bindings/julia bindings/julia/examples/resume.jl TEXT FOLDER [DIE]
# DIE: before this step rank 1 kills itself, in the first attempt alone.
using Gangway, Printf

const SEQUENCE, BATCH, STEPS, EVERY = 32, 8, 20, 5

function main(text, folder, die = "0")
    first_attempt = get(ENV, "GANGWAY_RESTART_COUNT", "0") == "0" # set by gangrun
    last = first_attempt ? parse(Int, die) : 0
    Gangway.init() do gangs
        rank = Gangway.rank(gangs.root)
        model = parallelize!(Llama(dim = 32, layers = 2, heads = 2), gangs; seed = 1)
        opt = AdamW(model; lr = 3e-3)
        data = Dataset(text; format = "u8", sequence = SEQUENCE, seed = 1) # a token is a byte
        run = Checkpoints(folder, gangs; every = EVERY)
        state = restore!(run, model, opt) # nothing: a new run
        if state !== nothing
            restore!(data, Gangway.text(run, "data"))
            rank == 0 && println("goes on after step ", state.step)
        end
        for step in batches_taken(data)+1:STEPS
            step == last && rank == 1 && ccall(:raise, Cint, (Cint,), 9) # SIGKILL
            result = train_step!(model, opt, next!(data, gangs; global_batch = BATCH))
            rank == 0 && @printf("step %d  loss %.17f\n", step, result.loss)
            due(run, step) || continue
            texts = Dict("data" => position(data))
            Gangway.save(run, model, opt; step, tokens = step * BATCH * SEQUENCE, texts) # copies; a thread writes
        end
        wait(run) # until the last one is written
        Gangway.release!(run)
    end
end

length(ARGS) < 2 ? error("usage: resume.jl TEXT FOLDER [DIE]") : main(ARGS...)
