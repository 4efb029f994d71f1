# One fact is one test set with a name that states it. Counts go to the folder GANGWAY_TEST_COUNTS, one file for each
# process, so that one script can add them up: rank 0 counts what passed, every rank what failed.
using Test

# Where gangs of `start` compute; test.sh runs some files on the software GPU, too.
const DEVICE = get(ENV, "GANGWAY_TEST_DEVICE", "cpu")
start(; keywords...) = Gangway.init(; device = DEVICE, keywords...)

const COUNTS = (passed = Ref(0), failed = Ref(0), skipped = Ref(0))

# `on_host`: why it cannot be shown on a GPU.
function fact(body, name; on_host = nothing)
    only = split(get(ENV, "GANGWAY_TEST_ONLY", ""), '|') # parts of names
    any(part -> occursin(part, name), only) || return nothing
    DEVICE == "cpu" || on_host === nothing || return skip(name, on_host)
    try
        @testset "$name" begin
            body()
        end
        COUNTS.passed[] += 1
        get(ENV, "RANK", "0") == "0" && println("ok    ", name)
    catch problem
        problem isa InterruptException && rethrow()
        COUNTS.failed[] += 1
        problem isa Test.TestSetException || showerror(stdout, problem)
        println("FAIL  ", name)
    end
    flush(stdout)
    return nothing
end

function skip(name, reason)
    get(ENV, "RANK", "0") == "0" || return nothing
    COUNTS.skipped[] += 1
    println("skip  ", name, ": ", reason)
    return nothing
end

function report_counts()
    folder = get(ENV, "GANGWAY_TEST_COUNTS", "")
    first_rank = get(ENV, "RANK", "0") == "0"
    isempty(folder) || write(joinpath(folder, "$(getpid())-$(time_ns())"),
                             join((first_rank ? COUNTS.passed[] : 0, COUNTS.failed[], COUNTS.skipped[]), ' ') * "\n")
    return COUNTS.failed[] == 0
end

# The exception that `f` throws, or nothing.
function thrown(f)
    try
        f()
    catch exception
        return exception
    end
    return nothing
end

# `f` is refused, and the text names each of `parts`.
function refused(f, parts...; kind = Exception)
    found = thrown(f)
    text = found === nothing ? "nothing was thrown" : sprint(showerror, found)
    good = found isa kind && all(part -> occursin(part, text), parts)
    good || println("      not refused as wanted: ", text)
    return good
end

# Everything that nothing refers to is finalised, and what the library freed is forgotten.
function collect_all()
    GC.gc(true)
    GC.gc(true)
    return Gangway.sweep()
end

# A module that copies.
plain_custom(; keywords...) = Custom(; shapes = identity, forward = call -> copyto!(call.outputs[1], call.inputs[1]),
                                     backward_input = call -> copyto!(call.input_grads[1], call.output_grads[1]),
                                     keywords...)
