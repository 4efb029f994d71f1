# Runs every test in processes of its own: one, lifetimes, memory, interrupts of callbacks, threads, ranks under gangrun,
# interrupts. GANGWAY_LIBRARY names the library, GANGWAY_GANGRUN the launcher (else it is looked for in PATH).
# GANGWAY_TEST_DEVICE=cuda: models, partitions and pipelines on GPUs instead.
# GANGWAY_TEST_ALL=1: everything is compiled, four ranks collect, too, and the examples run as in
# tests/bindings/examples/test.sh.
using Gangway

include("facts.jl")

const FOLDER = mktempdir()
const COUNTS_FOLDER = get!(ENV, "GANGWAY_TEST_COUNTS", mkpath(joinpath(FOLDER, "counts")))
const GANGRUN = get(ENV, "GANGWAY_GANGRUN", something(Sys.which("gangrun"), ""))
const ROOT = dirname(@__DIR__)
const ENVIRONMENT = ("JULIA_LOAD_PATH" => join([Base.load_path(); "@stdlib"], ':'),
                     "GANGWAY_TEST_FOLDER" => FOLDER, "RANK" => nothing, "WORLD_SIZE" => nothing)

const ALL = !isempty(get(ENV, "GANGWAY_TEST_ALL", ""))

# Most of a test's time is Julia's compiler, in each rank anew. It optimises little, and where a fact is about what
# functions do it compiles only what calls the library: Julia interprets the rest in a fifth of the time. What the collector
# may take, where a signal or a fault is thrown and how threads meet depends on compiled code: those files are compiled.
const COMPILED = `-O1`
const INTERPRETED = ALL ? COMPILED : `-O0 --compile=min`

julia(file, arguments...; threads = 1, mode = INTERPRETED) =
    `$(Base.julia_cmd()) $mode --startup-file=no -t $threads $(joinpath(ROOT, file)) $arguments`

# A process that ends badly without having counted a failure is one.
function process(what, command)
    println("== ", what)
    flush(stdout)
    before = counted()
    worked = withenv(ENVIRONMENT...) do
        success(pipeline(command; stdout = stdout, stderr = stderr))
    end
    worked || counted()[2] > before[2] || (COUNTS.failed[] += 1; println("FAIL  ", what))
    return worked
end

counted() = reduce((a, b) -> a .+ b, (parse.(Int, split(read(joinpath(COUNTS_FOLDER, file), String)))
                                      for file in readdir(COUNTS_FOLDER)); init = [0, 0, 0])

function ranks(count, what, file, arguments...; keywords...)
    name = "$what over $count ranks"
    isempty(GANGRUN) && return skip(name, "no gangrun: set GANGWAY_GANGRUN or PATH")
    return process(name, `$GANGRUN -n $count --timeout 1800 $(julia(file, arguments...; keywords...))`)
end

function example(count, file, arguments...)
    isempty(GANGRUN) && return ranks(count, file, "examples/$file", arguments...)
    ranks(count, "example $file", "examples/$file", arguments...) && (COUNTS.passed[] += 1)
end

function on_cpus()
    process("one process", julia("test/single.jl"))
    process("lifetimes", julia("test/lifetimes.jl"; mode = COMPILED))
    if isempty(get(ENV, "GANGWAY_COUNT_MALLOC", ""))
        skip("memory", "GANGWAY_COUNT_MALLOC names no library that counts: test.sh makes one")
    else
        withenv("LD_PRELOAD" => ENV["GANGWAY_COUNT_MALLOC"], "GANGWAY_NUM_THREADS" => "1") do
            process("memory", julia("test/memory.jl"; mode = COMPILED))
        end
    end
    process("interrupts of callbacks", julia("test/callback_interrupts.jl"; mode = COMPILED))
    process("threads", julia("test/threads.jl"; threads = 2, mode = COMPILED))
    ranks(2, "collectives, training, failures", "test/ranks.jl")
    ranks(2, "collections", "test/collections.jl"; threads = 2, mode = COMPILED)
    # What more ranks may change, and no more.
    withenv("GANGWAY_TEST_ONLY" => "gangs of gangs|training gives|a callback throws|shutdown is") do
        ranks(4, "training, failures", "test/ranks.jl")
    end
    withenv("GANGWAY_SHARED_REGIONS" => "0", "GANGWAY_TEST_ONLY" => "collections while|a work that is under way") do
        ranks(2, "full values without shared regions", "test/collections.jl"; mode = COMPILED)
    end
    ranks(4, "partitions", "test/partitions.jl")
    ranks(4, "rules of gradients", "test/gradients.jl")
    ranks(4, "pipelines", "test/pipelines.jl")
    ranks(2, "interrupts", "test/interrupts.jl"; mode = COMPILED)
    ALL ? repeats() : println("left to GANGWAY_TEST_ALL=1: collections over 4 ranks, 10,080 rounds of what leaves ",
                              "nothing, the examples, whose output tests/bindings/examples/test.sh compares")
end

function repeats()
    withenv("GANGWAY_TEST_ONLY" => "collections in") do
        ranks(4, "collections", "test/collections.jl"; mode = COMPILED)
    end
    foreach(file -> example(2, file), ("all_reduce.jl", "custom_module.jl", "shard_group.jl",
                                       "pipeline_custom_stage.jl"))
    example(2, "train_llama.jl", @__FILE__, joinpath(FOLDER, "trained"), "30")
end

# Collectives of arrays, threads, interrupts and examples are a CPU's, or tests/bindings/examples/test.sh has them.
function on_gpus()
    process("models", julia("test/models.jl"))
    withenv("GANGWAY_TEST_ONLY" => "training gives|a model saved|a shard group's|a callback throws|plan|replicas that differ|shutdown is") do
        ranks(2, "training, failures", "test/ranks.jl")
    end
    ranks(4, "partitions", "test/partitions.jl")
    ranks(4, "pipelines", "test/pipelines.jl")
end

DEVICE == "cpu" ? on_cpus() : on_gpus()
report_counts()
passed, failed, skipped = counted()
println("Gangway.jl: $passed passed, $failed failed, $skipped skipped")
failed == 0 || error("$failed of Gangway.jl's tests failed")
