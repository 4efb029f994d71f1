# What a call costs in Julia. Started by run.sh over two ranks; calls.c says what is measured.
using Gangway
using Gangway: rank

const C = ARGS[1] # the library of calls.c
const RANK, SMALL, LARGE, ROUND_TRIP = Cint(0), Cint(1), Cint(2), Cint(3)

# `own(calls)` makes a batch.
function compare(own, which)
    calls = Int(ccall((:bench_calls, C), Csize_t, (Cint,), which))
    own(3) # compiled
    for _ in 1:ccall((:bench_batches, C), Csize_t, ())
        ccall((:bench_c, C), Cvoid, (Cint,), which)
        start = time_ns()
        own(calls)
        ccall((:bench_own, C), Cvoid, (Cint, Cdouble), which, 1e-9 * (time_ns() - start))
    end
end

function ranks(gang, calls)
    kept = 0
    for _ in 1:calls
        kept += Gangway.rank(gang)
    end
    return kept
end

all_reduces(gang, x, calls) = for _ in 1:calls
    allreduce!(gang, x; op = :max)
end

round_trips(model, frame, x, calls) = for _ in 1:calls
    Gangway.forward(model, x; frame = frame)
    Gangway.backward(model, frame, x)
end

ccall((:bench_open, C), Cvoid, (Cstring,), "Julia")
const GANG = Gangway.Gang()
compare(n -> ranks(GANG, n), RANK)
for which in (SMALL, LARGE)
    x = fill!(Gangway.alloc(GANG, Float32, ccall((:bench_elements, C), Csize_t, (Cint,), which)), 0)
    compare(n -> all_reduces(GANG, x, n), which)
end
const MODEL = materialize!(Custom(; name = "copy", shapes = identity,
                                  forward = call -> copyto!(call.outputs[1], call.inputs[1]),
                                  backward_input = call -> copyto!(call.input_grads[1], call.output_grads[1])))
const FRAME = Gangway.Frame(MODEL)
const X = Float32[1 2; 3 4]
compare(n -> round_trips(MODEL, FRAME, X, n), ROUND_TRIP)
Gangway.shutdown(GANG)
ccall((:bench_close, C), Cvoid, ())
