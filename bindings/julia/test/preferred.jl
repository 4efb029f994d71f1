# A program whose project prefers a library: UUID of the package, LIBRARY. Started by single.jl.
using Libdl

# Before 1.6 Julia has no preferences; what stands here for them reads the same file.
isdefined(Base, :get_preferences) || @eval Base function get_preferences(uuid)
    string(uuid) == ARGS[1] || return Dict{String,Any}()
    lines = readlines(joinpath(first(Base.load_path()) |> dirname, "LocalPreferences.toml"))
    return Dict{String,Any}(split(line, " = ")[1] => strip(split(line, " = ")[2], '"') for line in lines if occursin(" = ", line))
end

using Gangway

@assert Gangway.library_path() == ARGS[2]
@assert ARGS[2] in dllist()
withenv("GANGWAY_LIBRARY" => "/no/such/library.so") do
    @assert Gangway.library_path() == "/no/such/library.so"
end
