# What things say of themselves.

function Base.show(io::IO, model::Model)
    isopen(model) || return print(io, "released Model")
    print(io, "Model(", length(model), " parameters, ", num_parameters(model), " elements)")
end

function Base.show(io::IO, parameter::Param)
    isopen(parameter) || return print(io, "released Param")
    info = describe(parameter)
    print(io, "Param(", info.name, ", ", join(info.dims, "x"), " ", info.dtype, isempty(info.layout) ? "" : ", $(info.layout)", ")")
end

function Base.show(io::IO, optimizer::Optimizer)
    isopen(optimizer) || return print(io, "released Optimizer")
    print(io, "Optimizer(learning rate ", learning_rate(optimizer), ", ", steps(optimizer), " steps)")
end

Base.show(io::IO, group::ShardGroup) =
    print(io, isopen(group) ? "" : "released ", "ShardGroup(", group.name, ": ", join(group.names, ", "), ")")

Base.show(io::IO, gang::Gang) = isopen(gang) ?
    print(io, "Gang(", repr(name(gang)), ", rank ", rank(gang), " of ", length(gang), ", engine ", engine(gang), ")") :
    print(io, "released Gang")

function Base.show(io::IO, gangs::Gangs)
    isopen(gangs) || return print(io, "released Gangs")
    degrees = [(axis, coordinate(gangs, axis).degree) for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp")]
    mesh = join(("$axis $degree" for (axis, degree) in degrees if degree > 1), " x ")
    print(io, "Gangs(", isempty(mesh) ? "one rank" : mesh, "; rank ", rank(gangs.root), " of ", length(gangs.root), ")")
end

function Base.show(io::IO, tensor::Tensor)
    isopen(tensor) || return print(io, "released Tensor")
    print(io, "Tensor(", summary(array(tensor)), is_read_only(tensor) ? ", read-only)" : ")")
end

function Base.show(io::IO, work::Work)
    isopen(work) || return print(io, "released Work")
    state = try
        isready(work) ? "done" : "in flight"
    catch e
        "failed, $(e.status)"
    end
    print(io, "Work(", state, ")")
end

for H in (Frame, Store, Bytes, Checkpoints, Metrics)
    @eval Base.show(io::IO, x::$H) = print(io, isopen(x) ? "" : "released ", $(string(nameof(H))))
end
