# One rank of a gang that may hold ranks in other languages: the same calls as rank.c, the same file of results.
using Gangway

const COUNT, FEATURES, SEQUENCE, ROWS, VOCAB, STEPS = 1000, 37, 16, 2, 64, 3
const KINDS = (:sum, :min, :max, :mean, :product)
const GANGS = Gangway.init()
const GANG = GANGS.root
const ME = Gangway.rank(GANG)
const OUT = open(joinpath(ARGS[1], string(ME)), "w")

put(name, x::AbstractArray) = println(OUT, name, ' ', bytes2hex(collect(reinterpret(UInt8, vec(collect(x))))))
put(name, x::Number) = put(name, [x])
put(name, ::Nothing) = println(OUT, name, ' ')

whole(i, salt) = mod((i + 1) * 7919 + ME * 104729 + salt * 1299709, 20011) - 10005
fill_array(T, count, salt) = T[T <: Integer ? whole(i, salt) : T(whole(i, salt)) / T(1000) for i in 0:count-1]

# Both forms of a collective; `out()` makes what it writes, nothing where only another root has it.
function both(name, now, later, arguments, out; keywords...)
    y = out()
    now(GANG, arguments..., y; keywords...)
    put(name, y)
    y = out()
    wait(later(GANG, arguments..., y; keywords...))
    put("$name later", y)
end

# The same of a record.
function both_of_record(name, op, out; keywords...)
    y = out()
    one = Gangway.Collective(op; output = y, keywords...)
    Gangway.@waits Gangway.LibGangway.gw_gang_run(GANG, one.record, C_NULL, C_NULL)
    put(name, y)
    y = out()
    wait(Gangway.run(GANG, Gangway.Collective(op; output = y, keywords...)))
    put("$name later", y)
end

zeros_of(n) = () -> zeros(Float32, n)
only_on(root, out) = ME == root ? out : () -> nothing

function collectives()
    for (salt, T, word) in ((0, Float32, "f32"), (1, Float64, "f64"), (2, Int32, "i32"), (3, Int64, "i64"))
        for op in KINDS[1:(salt < 2 ? 5 : 3)]
            both("all_reduce $word $op", allreduce!, allreduce_async!, (fill_array(T, COUNT, salt),),
                 () -> zeros(T, COUNT); op = op)
        end
    end
    both_of_record("accumulate", :all_reduce, () -> fill_array(Float32, COUNT, 80);
                   input = fill_array(Float32, COUNT, 0), accumulate = true)
    x = fill_array(Float32, 4COUNT, 10)
    part = view(x, 1:COUNT)
    both("all_gather", allgather!, allgather_async!, (part,), zeros_of(4COUNT))
    put("all_gather_list", vcat(allgather!(GANG, part, [zeros(Float32, COUNT) for _ in 1:4])...))
    places = [zeros(Float32, COUNT) for _ in 1:4]
    wait(allgather_async!(GANG, part, places))
    put("all_gather_list later", vcat(places...))
    for op in KINDS
        both("reduce_scatter $op", reducescatter!, reducescatter_async!, (x,), zeros_of(COUNT); op = op)
    end
    both("all_to_all", alltoall!, alltoall_async!, (x,), zeros_of(4COUNT))
    parts_of_counts()
    foreach(rooted, 0:3)
end

# Rank r brings or gets r + 1 elements; in all_to_all it sends so many to every rank.
function parts_of_counts()
    x, mine, counts = fill_array(Float32, 16, 90), ME + 1, 1:4
    both_of_record("all_to_all counts", :all_to_all, zeros_of(10); input = x, counts = [fill(mine, 4); counts])
    both_of_record("all_gather counts", :all_gather, zeros_of(10); input = x[1:mine], counts = counts)
    both_of_record("reduce_scatter counts", :reduce_scatter, zeros_of(mine); input = x[1:10], counts = counts)
    both_of_record("gather counts", :gather, only_on(2, zeros_of(10)); input = x[1:mine], counts = counts, peer = 2)
    both_of_record("scatter counts", :scatter, zeros_of(mine); input = ME == 2 ? x[1:10] : nothing, counts = counts,
                   peer = 2)
end

function rooted(root)
    x = fill_array(Float32, 4COUNT, 20 + root)
    part = x[1:COUNT]
    y = bcast!(GANG, copy(part); root = root)
    put("broadcast from $root", y)
    y = copy(part)
    wait(bcast_async!(GANG, y; root = root))
    put("broadcast from $root later", y)
    for op in KINDS
        both("reduce $op to $root", reduce!, reduce_async!, (part,), only_on(root, zeros_of(COUNT)); root = root, op = op)
    end
    both("gather to $root", gather!, gather_async!, (part,), only_on(root, zeros_of(4COUNT)); root = root)
    both("scatter from $root", scatter!, scatter_async!, (ME == root ? x : nothing,), zeros_of(COUNT); root = root)
end

function exchanges()
    x, y = fill_array(Float32, COUNT, 30), zeros(Float32, COUNT)
    next, before, other = mod(ME + 1, 4), mod(ME - 1, 4), xor(ME, 1)
    wait(Gangway.run_batch(GANG, [Gangway.Collective(:send; input = x, peer = next),
                                  Gangway.Collective(:recv; output = y, peer = before)]))
    put("batch", y)
    ME < other && Gangway.send(GANG, x, other)
    put("recv", recv!(GANG, y, other))
    ME > other && Gangway.send(GANG, x, other)
    got, sent = recv_async!(GANG, y, next), send_async(GANG, x, before)
    foreach(wait, (got, sent))
    put("recv later", y)
end

function small_things()
    barrier(GANG)
    wait(barrier_async(GANG))
    for root in 0:3
        put("flag", UInt8(Gangway.bcast_flag(GANG, ME == 2; root = root)))
        work, flag = Gangway.bcast_flag_async(GANG, ME == 2; root = root)
        wait(work)
        put("flag later", UInt8(flag[]))
    end
    put("all_sum", Gangway.allsum(GANG, whole(0, 40) / 1000))
    work, sum = Gangway.allsum_async(GANG, whole(0, 40) / 1000)
    wait(work)
    put("all_sum later", sum[])
    foreach(root -> put("broadcast_bytes", Gangway.bcast_bytes(GANG, Vector{UInt8}("rank $ME "); root = root)), 0:3)
    put("all_gather_bytes", vcat(Gangway.allgather_bytes(GANG, Vector{UInt8}("rank 0 rank 1 "[1:ME]))...))
    for (name, made) in (("split", Gangway.split_gang(GANG, ME % 2, -ME)),
                         ("create_gang", Gangway.subgang(GANG, [3, 0, 2])), ("duplicate", Gangway.duplicate(GANG)))
        x = fill_array(Float32, COUNT, 50)
        put(name, made === nothing ? x : allreduce!(made, x))
    end
end

function train()
    model = parallelize!(Llama(dim = 32, layers = 2, heads = 4, vocab = VOCAB), GANGS; seed = 9)
    opt = AdamW(model; lr = 0.01)
    for step in 0:STEPS-1
        tokens = Int64[mod(7i + 5(ME * ROWS + row) + 3step, VOCAB) for i in 0:SEQUENCE-1, row in 0:ROWS-1]
        result = train_step!(model, opt, tokens; max_grad_norm = 1)
        put("loss", result.loss)
        put("grad_norm", result.grad_norm)
    end
    foreach(p -> put("parameter", Gangway.gathered(p)), Gangway.parameters(model))
end

function own_compute()
    group = ShardGroup(GANGS, "own", "w" => (FEATURES,); seed = 5)
    model = Model(group)
    opt = AdamW(model; lr = 0.01)
    for step in 0:STEPS-1
        x, y = fill_array(Float32, FEATURES, 60 + step), fill_array(Float32, FEATURES, 70 + step)
        unshard!(w -> add_gradients!(group, w .* x .- y), group)
        reduce!(group)
        put("grad_norm", step!(opt; scale = 0.25, max_grad_norm = 1).grad_norm)
    end
    foreach(p -> put("parameter", Gangway.gathered(p)), Gangway.parameters(model))
end

foreach(part -> part(), (collectives, exchanges, small_things, train, own_compute))
close(OUT)
Gangway.shutdown(GANGS)
