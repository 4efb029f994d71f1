# The names of ChainRulesCore that the extension uses, for tests without a network and for Julia before 1.9,
# which has no package extensions.
module ChainRulesCore

function rrule end
struct NoTangent end
abstract type AbstractZero end
struct ZeroTangent <: AbstractZero end
abstract type AbstractThunk end
struct Thunk <: AbstractThunk
    value::Any
end
unthunk(x) = x
unthunk(x::Thunk) = x.value

end
