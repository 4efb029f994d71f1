# Whole values of a shard group as arguments of collectives. Included by ranks.jl.

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
