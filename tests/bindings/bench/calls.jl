# What a call costs in Julia, as a ratio to C in the same process. Started by run.sh over two ranks.
using Gangway, Printf
using Gangway: rank

const C = ARGS[1] # the library of calls.c
const BATCHES = 201

middle(values) = sort(values)[(end+1)÷2]

function timed(own, calls)
    start = time_ns()
    own(calls)
    return (time_ns() - start) / calls
end

# Batches of C and of Julia in turn, so that both see the same machine.
function compare(gang, name, calls, c, own)
    own(3) # compiled
    in_c, in_julia = Float64[], Float64[]
    for _ in 1:BATCHES
        barrier(gang)
        push!(in_c, 1e9 * c(calls) / calls)
        barrier(gang)
        push!(in_julia, timed(own, calls))
    end
    c_ns, julia_ns = middle(in_c), middle(in_julia)
    rank(gang) == 0 && @printf("julia  %-24s %10.1f %10.1f %7.2f\n", name, c_ns, julia_ns, julia_ns / c_ns)
end

function ranks(gang, calls)
    kept = 0
    for _ in 1:calls
        kept += rank(gang)
    end
    return kept
end

reduces(gang, x, calls) = for _ in 1:calls
    allreduce!(gang, x; op = :max)
end

function all_reduce(gang, name, count, calls)
    x = fill!(Gangway.alloc(gang, Float32, count), 0)
    compare(gang, name, calls, n -> ccall((:bench_all_reduce, C), Cdouble, (Csize_t, Csize_t), count, n),
            n -> reduces(gang, x, n))
end

round_trips(model, frame, x, calls) = for _ in 1:calls
    Gangway.forward(model, x; frame = frame)
    Gangway.backward(model, frame, x)
end

ccall((:bench_open, C), Cvoid, ())
const GANG = Gangway.Gang()
compare(GANG, "rank()", 20_000, n -> ccall((:bench_rank, C), Cdouble, (Csize_t,), n), n -> ranks(GANG, n))
all_reduce(GANG, "all_reduce of 8 bytes", 2, 200)
all_reduce(GANG, "all_reduce of 64 KiB", 16384, 50)
const MODEL = materialize!(Custom(; name = "copy", shapes = identity,
                                  forward = call -> copyto!(call.outputs[1], call.inputs[1]),
                                  backward_input = call -> copyto!(call.input_grads[1], call.output_grads[1])))
const FRAME = Gangway.Frame(MODEL)
compare(GANG, "custom-module round trip", 100, n -> ccall((:bench_round_trip, C), Cdouble, (Csize_t,), n),
        n -> round_trips(MODEL, FRAME, Float32[1 2; 3 4], n))
Gangway.shutdown(GANG)
ccall((:bench_close, C), Cvoid, ())
