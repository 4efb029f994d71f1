# Ctrl-C ends a wait within a second: rank 0 waits for a rank that does not come, and is interrupted. Started by gangrun
# -n 2.
using Gangway, Test
include("facts.jl")

Base.exit_on_sigint(false)

const FOLDER = ENV["GANGWAY_TEST_FOLDER"]

# The library asks the interrupt hook while it waits: the first ask after `TOLD` is false says, by a file, that this rank is
# inside of its call. Nothing here yields, as in the hook itself.
const INSIDE, TOLD = joinpath(FOLDER, "inside"), Ref(true)
function tell_and_ask(user::Ptr{Cvoid})::Int32
    if !TOLD[]
        TOLD[] = true
        ccall(:close, Cint, (Cint,), ccall(:creat, Cint, (Cstring, Cuint), INSIDE, 0o600))
    end
    return Gangway.ask_interrupt(user)
end
Gangway.ASK_INTERRUPT[] = @cfunction(tell_and_ask, Int32, (Ptr{Cvoid},))

const GANGS = Gangway.init(; timeout_ms = 600_000)
const ME = Gangway.rank(GANGS.root)

# What `f` throws that is interrupted when it waits in the library, and how many ms after the signal. The sender looks at
# the clock right before it sends, by what the shell itself has: no other program starts or ends in between.
function interrupted(what, f)
    stamp = joinpath(FOLDER, "signal")
    rm(INSIDE; force = true)
    script = "until [ -e $INSIDE ]; do sleep 0.01; done; now=\$EPOCHREALTIME; kill -INT $(getpid()); echo \$now >$stamp"
    sender = run(setenv(`bash -c $script`, "LC_ALL" => "C", "PATH" => ENV["PATH"]); wait = false)
    TOLD[] = false
    e = thrown(f)
    ended = time()
    wait(sender)
    late = 1000 * (ended - parse(Float64, read(stamp, String)))
    println("      ", what, " ended ", round(Int, late), " ms after the signal")
    return e, late
end

is_broken(gang) = thrown(() -> Gangway.async_error(gang)) isa GangwayError

# The other rank comes when the first has been interrupted.
function wait_for(name)
    while !isfile(joinpath(FOLDER, name))
        sleep(0.05)
    end
end
done(name) = touch(joinpath(FOLDER, name))

fact("Ctrl-C ends a barrier within a second, which breaks the gang") do
    gang = Gangway.duplicate(GANGS.root)
    if ME == 0
        e, late = interrupted("a barrier", () -> barrier(gang))
        @test e isa InterruptException && late <= 1000 && is_broken(gang)
        @test thrown(() -> barrier(gang)) isa Gangway.CallerFailed
        done("barrier")
    else
        wait_for("barrier")
        @test thrown(() -> barrier(gang)) isa GangwayError
    end
end

fact("Ctrl-C ends the wait for a work within a second, and the work goes on") do
    gang = Gangway.duplicate(GANGS.root)
    x = [1.0]
    work = allreduce_async!(gang, x)
    if ME == 0
        other = recv_async!(gang, x[1:1], 1)
        e, late = interrupted("the wait for a work", () -> wait(other))
        @test e isa InterruptException && late <= 1000 && !is_broken(gang)
        done("work")
        wait(other)
    else
        wait_for("work")
        Gangway.send(gang, [2.0], 0)
    end
    wait(work)
    @test x == [2.0]
end

fact("Ctrl-C ends a training step within a second, and the peer learns of it") do
    gangs = Gangway.init(; timeout_ms = 600_000)
    model = parallelize!(Llama(dim = 16, layers = 1, heads = 2), gangs)
    opt, tokens = AdamW(model), ones(Int64, 4, 2)
    step() = train_step!(model, opt, tokens)
    step()
    if ME == 0
        e, late = interrupted("a training step", step)
        @test e isa InterruptException && late <= 1000
        @test thrown(step) isa GangwayError
        done("step")
    else
        wait_for("step")
        @test thrown(step) isa GangwayError
    end
end

fact("Ctrl-C ends an unshard within a second, which breaks the gang") do
    gangs = Gangway.init(; timeout_ms = 600_000)
    group = ShardGroup(gangs, "g", "w" => (3, 4); seed = 1)
    opt = SGD(Model(group))
    # The first unshard after an update waits for every rank's rows.
    use() = (unshard!(w -> add_gradients!(group, ones(Float32, 3, 4)), group); reduce!(group); step!(opt))
    use()
    if ME == 0
        e, late = interrupted("an unshard", use)
        @test e isa InterruptException && late <= 1000
        @test thrown(use) isa GangwayError
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
