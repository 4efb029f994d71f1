# Whole values of a shard group are read-only where ranks are processes. Included by ranks.jl.

fact("a write to full values is a ReadOnlyMemoryError") do
    group = ShardGroup(Gangway.init(), "g", "w" => (3, 4); seed = 1)
    unshard!(group) do w
        before = copy(w)
        @test thrown(() -> (w[1] = 7)) isa ReadOnlyMemoryError
        @test thrown(() -> fill!(parent(w), 7)) isa ReadOnlyMemoryError
        @test w == before
    end
end

# Nothing is sent, so that a rank may be refused alone.
fact("a full value as the output of a call is refused by name, and nothing is broken") do
    group = ShardGroup(Gangway.init(), "g", "w" => (RANKS, 4); seed = 1)
    unshard!(group) do w
        x, part = ones(Float32, RANKS, 4), ones(Float32, 4)
        for (name, call) in ("allreduce!: output" => () -> allreduce!(GANG, x, w),
                             "allreduce!: output" => () -> allreduce!(GANG, w),
                             "allreduce_async!: output" => () -> allreduce_async!(GANG, vec(w)),
                             "allgather!: output" => () -> allgather!(GANG, part, w),
                             "allgather!: outputs[$RANKS]" => () ->
                                 allgather!(GANG, x, [r == RANKS ? w : copy(x) for r in 1:RANKS]),
                             "reducescatter!: output" => () ->
                                 reducescatter!(GANG, repeat(x, 1, RANKS), w),
                             "bcast!: x" => () -> bcast!(GANG, view(w, :, 2); root = mod(ME + 1, RANKS)),
                             "bcast_async!: x" => () -> bcast_async!(GANG, w; root = mod(ME + 1, RANKS)),
                             "reduce!: output" => () -> reduce!(GANG, x, w; root = ME),
                             "gather!: output" => () -> gather!(GANG, part, w; root = ME),
                             "scatter!: output" => () -> scatter!(GANG, x, view(w, :, 1:1); root = mod(ME + 1, RANKS)),
                             "alltoall!: output" => () -> alltoall!(GANG, x, w),
                             "recv!: x" => () -> recv!(GANG, reshape(w, :), mod(ME + 1, RANKS)),
                             "Collective: output" => () -> Gangway.Collective(:recv; output = w, peer = 0))
            @test refused(call, name, "read-only"; kind = ArgumentError)
        end
        @test refused(() -> unshard!(group, (w,)), "into[1]", "read-only"; kind = ArgumentError)
        # Behind Julia's back the library says it.
        for x in (parent(w), vec(parent(w)))
            @test refused(() -> allreduce!(GANG, x), "all_reduce", "output", "read-only"; kind = Gangway.InvalidArgument)
        end
        @test allreduce(GANG, w) == RANKS .* w
    end
end

fact("the root of a broadcast may give a full value, by each way, and no other rank may") do
    group = ShardGroup(Gangway.init(), "g", "w" => (RANKS, 4); seed = 1)
    unshard!(group) do w
        for root in OTHERS
            mine() = ME == root ? w : zeros(Float32, RANKS, 4)
            record(x) = Gangway.Collective(:broadcast; input = x, output = x, peer = root)
            @test bcast!(GANG, mine(); root = root) == w
            x = mine()
            wait(bcast_async!(GANG, x; root = root))
            @test x == w
            x = mine()
            wait(Gangway.run(GANG, record(x)))
            @test x == w
            x = mine()
            wait(Gangway.run_batch(GANG, [record(x)]))
            @test x == w
            if ME != root
                @test refused(() -> Gangway.run(GANG, record(w)), "output", "read-only", "root"; kind = ArgumentError)
                @test refused(() -> Gangway.run_batch(GANG, [record(w)]), "output", "read-only"; kind = ArgumentError)
            end
        end
    end
end

# Without shared regions the memory of full values goes, or is used again, at the reshard.
fact("a work that is under way at the reshard has the full values to its end") do
    gangs = Gangway.init()
    first_group, other = (ShardGroup(gangs, name, Parameter("w", (500_000, RANKS); kind = kind))
                          for (name, kind) in (("first", :ones), ("other", :zeros)))
    next, before = mod(ME + 1, RANKS), mod(ME - 1, RANKS)
    twin = Gangway.duplicate(GANG)
    forms = ((w -> send_async(twin, w, next)), (w -> send_async(twin, vec(w), next)),
             (w -> Gangway.run_batch(twin, [Gangway.Collective(:send; input = w, peer = next)])))
    for form in forms
        w, = unshard!(first_group)
        record = Gangway.Collective(:send; input = w, peer = next)
        for x in (w, vec(w), view(w, :, 1), (nothing, w), [w], Any[w], record, [record])
            @test map(isopen, collect(Gangway.lent_tensors(x))) == [true] # what a work keeps
        end
        work = form(w)
        reshard!(first_group)
        unshard!(other)
        GC.gc(false)
        barrier(GANG)
        got = fill(7.0f0, 500_000, RANKS)
        recv!(twin, got, before)
        wait(work)
        @test all(==(1), got) && isempty(w)
        reshard!(other)
    end
end
