# Ctrl-C ends a wait: rank 0 waits for a rank that does not come, and is interrupted. Started by gangrun -n 2.
using Gangway, Test
include("facts.jl")

Base.exit_on_sigint(false)

const GANGS = Gangway.init(; timeout_ms = 300_000)
const ME = Gangway.rank(GANGS.root)
const FOLDER = ENV["GANGWAY_TEST_FOLDER"]

# Interrupts this process until `f` is left by an InterruptException that came out of the wait: one that comes before the
# wait has begun leaves `broken` false, and another is sent. Prints how long after the signal the wait ended.
function interrupted(what, f, broken)
    stamp = joinpath(FOLDER, "signal")
    while true
        sender = run(`sh -c "sleep 1; date +%s.%N >$stamp; kill -INT $(getpid())"`; wait = false)
        e = try
            f()
            sleep(30)
        catch exception
            exception
        end
        ended = time()
        wait(sender)
        e isa InterruptException || return e
        broken() || continue
        println("      ", what, " ended ", round(Int, 1000 * (ended - parse(Float64, read(stamp, String)))),
                " ms after the signal")
        return e
    end
end

is_broken(gang) = thrown(() -> Gangway.async_error(gang)) isa GangwayError

# The other rank comes when the first has been interrupted.
function wait_for(name)
    while !isfile(joinpath(FOLDER, name))
        sleep(0.05)
    end
end
done(name) = touch(joinpath(FOLDER, name))

fact("Ctrl-C ends a barrier, which breaks the gang") do
    gang = Gangway.duplicate(GANGS.root)
    if ME == 0
        e = interrupted("a barrier", () -> barrier(gang), () -> is_broken(gang))
        @test e isa InterruptException
        @test thrown(() -> barrier(gang)) isa Gangway.CallerFailed
        done("barrier")
    else
        wait_for("barrier")
        @test thrown(() -> barrier(gang)) isa GangwayError
    end
end

fact("Ctrl-C ends the wait for a work, which goes on") do
    gang = Gangway.duplicate(GANGS.root)
    x = [1.0]
    work = allreduce_async!(gang, x)
    if ME == 0
        other = recv_async!(gang, x[1:1], 1)
        e = interrupted("the wait for a work", () -> wait(other), () -> true)
        @test e isa InterruptException && !is_broken(gang)
        done("work")
        wait(other)
    else
        wait_for("work")
        send(gang, [2.0], 0)
    end
    wait(work)
    @test x == [2.0]
end

fact("Ctrl-C ends a training step, and the peer learns of it") do
    gangs = Gangway.init(; timeout_ms = 300_000)
    model = parallelize!(Llama(dim = 16, layers = 1, heads = 2), gangs)
    opt, tokens = AdamW(model), ones(Int64, 4, 2)
    train_step!(model, opt, tokens, tokens)
    if ME == 0
        step() = train_step!(model, opt, tokens, tokens)
        e = interrupted("a training step", step, () -> thrown(step) isa GangwayError)
        @test e isa InterruptException
        done("step")
    else
        wait_for("step")
        @test thrown(() -> train_step!(model, opt, tokens, tokens)) isa GangwayError
    end
end

fact("Ctrl-C ends an unshard, which breaks the gang") do
    gangs = Gangway.init(; timeout_ms = 300_000)
    group = ShardGroup(gangs, "g", "w" => (3, 4); seed = 1)
    opt = SGD(Model(group))
    # The first unshard after an update waits for every rank's rows.
    use() = (unshard!(w -> add_gradients!(group, ones(Float32, 3, 4)), group); reduce!(group); step!(opt))
    use()
    if ME == 0
        e = interrupted("an unshard", use, () -> thrown(use) isa GangwayError)
        @test e isa InterruptException
        said = thrown(() -> barrier(gangs.dp))
        @test said isa GangwayError && occursin("interrupt", said.message)
        done("unshard")
    else
        wait_for("unshard")
        @test thrown(use) isa GangwayError
    end
end

# The other rank just ends.
ME == 0 && fact("a rank that left without shutdown is lost, and named") do
    e = thrown(() -> barrier(GANGS.root))
    @test e isa Gangway.PeerLost && e.peer == 1 && occursin("without shutdown", e.message)
end

exit(report_counts() ? 0 : 1)
