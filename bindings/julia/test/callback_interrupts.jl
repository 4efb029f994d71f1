# Ctrl-C in calls and callbacks: it comes out of the call as itself, and the library's frames are not skipped. One process.
using Gangway, Libdl, Test
using Gangway: LibGangway
include("facts.jl")

Base.exit_on_sigint(false)

# Whether a SIGINT waits to be thrown.
const PENDING = Libdl.dlsym_e(Libdl.dlopen(""), :jl_signal_pending)
is_pending() = unsafe_load(Ptr{Cint}(PENDING)) != 0
held_back_fact(body, name) =
    PENDING == C_NULL ? skip(name, "this Julia does not tell whether a SIGINT waits") : fact(body, name)

# Sends one, which is held back, and returns when it has come.
function interrupt_held_back()
    ccall(:kill, Cint, (Cint, Cint), getpid(), 2)
    while !is_pending()
        ccall(:usleep, Cint, (Cuint,), 1000)
    end
end

# Collections and allocations are where Julia throws it.
throwing_place() = (GC.safepoint(); Any[i for i in 1:10])

function finalize_while_it_waits(x)
    interrupt_held_back()
    finalize(x)
    throwing_place()
end

# The first fact: nothing has been finalised in this process.
held_back_fact("Ctrl-C that waits when a handle is finalised for the first time comes after it, and the handle is released") do
    @test thrown(() -> finalize_while_it_waits(Ref(0))) isa InterruptException # compiles it
    gang, model = Gangway.fake_gang(0, 2), parallelize!(Linear(2, 2; bias = false))
    handles = Any[Gangway.Gang(), model, SGD(model), Gangway.Frame(model), only(Gangway.parameters(model)),
                  barrier_async(gang), Gangway.Tensor(ones(2)), Gangway.alloc(gang, Float32, 3).owner, Gangway.init(),
                  Gangway.Store((key, value) -> nothing, key -> nothing, key -> nothing)]
    @test length(unique(map(typeof, handles))) == length(handles)
    for x in handles
        e = thrown(() -> finalize_while_it_waits(x))
        @test e isa InterruptException && getfield(x, 1) == C_NULL
    end
end

held_back_fact("Ctrl-C is held back until a call of the library has ended and given what it made") do
    ended, made = Ref(false), Ref(false)
    e = thrown() do
        Gangway.@waits begin
            interrupt_held_back()
            throwing_place()
            ended[] = true
            LibGangway.GW_OK
        end (throwing_place(); made[] = true)
    end
    @test e isa InterruptException && ended[] && made[]
    throwing_place()
end

held_back_fact("Ctrl-C while a work starts comes when its arrays are held") do
    here, there = Gangway.thread_gangs(2)
    x, held = ones(4), Ref{Any}(nothing)
    e = thrown() do
        Gangway.start(x) do out
            status = LibGangway.gw_gang_recv_async(here, x, 4, LibGangway.GW_F64, 1, C_NULL, out)
            held[] = last(Gangway.PINS)
            interrupt_held_back()
            throwing_place()
            status
        end
    end
    @test e isa InterruptException && held[].object === x && held[].frees == 0
    wait(send_async(there, fill(5.0, 4), 0))
end

held_back_fact("Ctrl-C that waits when a callback or the interrupt hook begins ends it by a status, and throws nothing") do
    runs, ended = Ref(0), Ref(0)
    callback() = Gangway.guarded(() -> (runs[] += 1; throwing_place(); nothing), () -> ended[] += 1)
    for (at, run) in enumerate((callback, () -> Gangway.ask_interrupt(C_NULL)))
        status = Base.disable_sigint() do
            interrupt_held_back()
            status = run()
            throwing_place()
            status
        end
        @test status == (at == 1 ? LibGangway.GW_E_CALLER : 1)
        @test thrown(() -> Gangway.fail(LibGangway.GW_E_CALLER)) isa InterruptException
    end
    @test runs[] == 0 && ended[] == 1
    @test Base.disable_sigint(callback) == LibGangway.GW_OK && runs[] == 1
end

# Allocates all the time, as Julia code does.
function busy(call)
    copyto!(call.outputs[1], [2 * x for x in call.inputs[1]])
end
# The signal comes while it computes.
function endless(call)
    ccall(:kill, Cint, (Cint, Cint), getpid(), 2)
    while true
        busy(call)
    end
end

custom(forward; keywords...) = plain_custom(; forward = forward, keywords...)
const X = Float32[1, 2, 3]

fact("Ctrl-C ends a forward that computes for ever, as itself, and the module works on") do
    forever = Ref(true)
    model = parallelize!(custom(call -> forever[] ? endless(call) : busy(call)))
    for _ in 1:3
        forever[] = true
        @test thrown(() -> Gangway.forward(model, X)) isa InterruptException
        forever[] = false
        @test Gangway.forward(model, X)[1] == 2 .* X
    end
    @test all(isnothing, Gangway.THROWN)
end

exit(report_counts() ? 0 : 1)
