# Nothing is left behind by what is made and released. A process of its own, in which a preloaded library counts every malloc
# and free: the library's and Julia's. GANGWAY_NUM_THREADS is 1, as a thread of a gang that lives would allocate for itself
# when it first runs, which on a busy machine is at any time.
using Gangway, Test
include("facts.jl")

const ONE, READY = Gangway.Gang(), parallelize!(Linear(4, 4; bias = false))

make_one(kind) =
    kind === :gang ? Gangway.Gang(; threads = 2) :
    kind === :fake ? Gangway.fake_gang(0, 2) :
    kind === :linear ? Linear(4, 4) :
    kind === :llama ? Llama(dim = 8, layers = 1, heads = 1) :
    kind === :tensor ? Gangway.Tensor(ones(Float32, 8, 8)) :
    kind === :custom ? plain_custom() :
    kind === :work ? barrier_async(ONE) :
    kind === :frame ? Gangway.Frame(READY) :
    kind === :parameter ? only(Gangway.parameters(READY)) :
    kind === :optimizer ? AdamW(READY) :
    kind === :group ? ShardGroup(nothing, "g", "w" => (3,)).handle :
    kind === :store ? Gangway.Store((k, v) -> nothing, k -> nothing, k -> nothing) :
    kind === :memory ? Gangway.alloc(ONE, Float64, 8).owner :
    error("no $kind")

@noinline function make_and_release(kind, count)
    for i in 1:count
        one = make_one(kind)
        # Half by hand, half by the collector.
        iseven(i) && Gangway.release!(one)
    end
end

# In two parts, each a multiple of 7, the entries in a block of the library's rings. The collector runs between them and at
# no other time, so that its own lists are as long in each. The first 10,080 fill the rings; fewer show what is left.
const FIRST_PART = 5_040
const PART = isempty(get(ENV, "GANGWAY_TEST_ALL", "")) ? 1_260 : FIRST_PART
function make_and_collect(kind, part)
    for _ in 1:2
        GC.enable(false)
        make_and_release(kind, part)
        GC.enable(true)
        collect_all()
    end
end

function allocated()
    blocks, bytes = Ref{Clong}(0), Ref{Clong}(0)
    ccall(:count_malloc, Cvoid, (Ptr{Clong}, Ptr{Clong}), blocks, bytes)
    return (blocks[], bytes[])
end

# Blocks and bytes that are left by both. Less than nothing: Julia's, of what it compiled before.
function left_by(kind, part)
    before = allocated()
    make_and_collect(kind, part)
    return allocated() .- before
end

const KINDS = (:linear, :tensor, :fake, :custom, :llama, :gang, :work, :memory, :frame, :parameter, :optimizer, :group, :store)

fact("thousands of each kind of handle that are made and released leave no block of malloc and no pin, each time") do
    for kind in KINDS
        left_by(kind, FIRST_PART) # compiled, and the collector's lists and the library's rings are full
        pins = collect_all()
        batches = [left_by(kind, PART) for _ in 1:2]
        # A list keeps the room for the most that there ever was: less than a byte for each.
        good = all(((blocks, bytes),) -> blocks <= 0 && bytes < 2 * PART, batches)
        good || println("      ", kind, " left blocks and bytes: ", batches)
        @test good && collect_all() == pins
    end
end

exit(report_counts() ? 0 : 1)
