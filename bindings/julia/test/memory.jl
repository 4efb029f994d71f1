# Nothing is left behind by what is made and released. A process of its own, in which a preloaded library counts every malloc
# and free: the library's and Julia's.
using Gangway, Test
include("facts.jl")

const ONE, READY = Gangway.Gang(), parallelize!(Linear(4, 4))

make_one(kind) =
    kind === :gang ? Gangway.Gang() :
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

function allocated()
    blocks, bytes = Ref{Clong}(0), Ref{Clong}(0)
    ccall(:count_malloc, Cvoid, (Ptr{Clong}, Ptr{Clong}), blocks, bytes)
    return (blocks[], bytes[])
end

# Blocks and bytes that are left by so many. Julia's own lists may grow in one batch; a leak is in each.
function left_by(kind, count)
    left = (0, 0)
    for _ in 1:3
        before = allocated()
        make_and_release(kind, count)
        collect_all()
        left = allocated() .- before
        left[1] <= 0 && left[2] < count && break
    end
    return left
end

const KINDS = (:linear, :tensor, :fake, :custom, :llama, :gang, :work, :memory, :frame, :parameter, :optimizer, :group, :store)

fact("10,000 of each kind of handle that are made and released leave no block of malloc and no pin") do
    for kind in KINDS
        make_and_release(kind, 10_000) # compiled, and the collector's lists and the library's rings are full
        pins = collect_all()
        blocks, bytes = left_by(kind, 10_000)
        # A list that kept a pointer for each would grow by 80,000 bytes in one block.
        good = blocks <= 0 && bytes < 10_000
        good || println("      ", kind, " left ", blocks, " blocks and ", bytes, " bytes")
        @test good && collect_all() == pins
    end
end

exit(report_counts() ? 0 : 1)
