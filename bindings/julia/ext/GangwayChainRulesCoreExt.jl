# Rules of reverse mode for movements and collectives that give new arrays: what Zygote and others that read
# ChainRulesCore's rules need. The inner product is the sum over all ranks, so a gradient is that of the sum
# of all ranks' losses. Forward and pullback are collective: every rank runs both, in one order.
module GangwayChainRulesCoreExt

import ChainRulesCore
import ChainRulesCore: rrule, NoTangent
using Gangway: Gangway, Gang, Movement, allgather, allreduce, alltoall, bcast, rank, reduce!, reducescatter

# The gradient of `y` as a dense array of its type.
function dense(dy, y)
    plain = ChainRulesCore.unthunk(dy)
    plain isa ChainRulesCore.AbstractZero && return fill!(similar(y, eltype(y), size(y)), 0)
    return convert(Array{eltype(y)}, plain)
end

# The factor of a linear reduction's adjoint.
function factor(call, gang, op)
    op in (:sum, +) && return 1
    op === :mean && return 1 / length(gang)
    Gangway.refuse(call, ": op is ", op, ", but gradients go through :sum and :mean alone")
end
scaled(x, by) = by == 1 ? x : convert(typeof(x), x .* eltype(x)(by))

# What a forward leaves for its backward lies in the duplicate, so that several forwards may come before a
# backward.
function ChainRulesCore.rrule(movement::Movement, x)
    kept = Gangway.duplicate(movement)
    y = kept(x)
    function pullback(dy)
        dx = Gangway.backward(kept, dense(dy, y))
        return (NoTangent(), x === nothing ? NoTangent() : dx)
    end
    return y, pullback
end

function ChainRulesCore.rrule(::typeof(allreduce), gang::Gang, x; op = :sum)
    by = factor("allreduce", gang, op)
    y = allreduce(gang, x; op = op)
    return y, dy -> (NoTangent(), NoTangent(), scaled(allreduce(gang, dense(dy, y)), by))
end

function ChainRulesCore.rrule(::typeof(allgather), gang::Gang, x)
    y = allgather(gang, x)
    return y, dy -> (NoTangent(), NoTangent(), reducescatter(gang, dense(dy, y)))
end

function ChainRulesCore.rrule(::typeof(reducescatter), gang::Gang, x; op = :sum)
    by = factor("reducescatter", gang, op)
    y = reducescatter(gang, x; op = op)
    return y, dy -> (NoTangent(), NoTangent(), scaled(allgather(gang, dense(dy, y)), by))
end

function ChainRulesCore.rrule(::typeof(bcast), gang::Gang, x; root = 0)
    y = bcast(gang, x; root = root)
    function pullback(dy)
        sum_of_all = reduce!(gang, dense(dy, y); root = root)
        return (NoTangent(), NoTangent(), rank(gang) == root ? sum_of_all : fill!(sum_of_all, 0))
    end
    return y, pullback
end

function ChainRulesCore.rrule(::typeof(alltoall), gang::Gang, x)
    y = alltoall(gang, x)
    return y, dy -> (NoTangent(), NoTangent(), alltoall(gang, dense(dy, y)))
end

end
