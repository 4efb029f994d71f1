# Finding the library and refusing one that is too old or too new.

include("level.jl")

# GANGWAY_LIBRARY, then the preference "library" (Julia 1.6 and later read LocalPreferences.toml), then the loader's path.
function library_path()
    haskey(ENV, "GANGWAY_LIBRARY") && return ENV["GANGWAY_LIBRARY"]
    if isdefined(Base, :get_preferences)
        uuid = Base.PkgId(@__MODULE__).uuid
        found = uuid === nothing ? nothing : get(Base.get_preferences(uuid), "library", nothing)
        found === nothing || return found
    end
    return LIBRARY
end

# Without RTLD_DEEPBIND, Julia's default: where Julia itself brings a libunwind (Debian), libstdc++ unwinds by that one, and
# a library bound to libgcc's would abort at its first exception.
const LOADER_FLAGS = Libdl.RTLD_LAZY | Libdl.RTLD_LOCAL

function load_library()
    path = library_path()
    handle = Libdl.dlopen(path, LOADER_FLAGS; throw_error = false)
    handle === nothing && error("Gangway: cannot open $path; set GANGWAY_LIBRARY to the path of libgangway.so")
    range = Libdl.dlsym(handle, :gw_abi_range; throw_error = false)
    range === nothing && error("Gangway: $path is no Gangway library: it lacks gw_abi_range")
    lowest, highest = Ref{Int32}(-1), Ref{Int32}(-1)
    ccall(range, Cvoid, (Ptr{Int32}, Ptr{Int32}), lowest, highest)
    check_level(path, lowest[], highest[])
    LibGangway.open_library(path)
    major = abi_version().major
    major == ABI_MAJOR || error("Gangway: $path has ABI $major, this package wants ABI $ABI_MAJOR")
    return nothing
end

check_level(path, lowest, highest) = lowest <= ABI_MINOR <= highest ||
    error("Gangway: $path knows the ABI levels $ABI_MAJOR.$lowest to $ABI_MAJOR.$highest, this package wants ",
          "$ABI_MAJOR.$ABI_MINOR")

"The library's ABI level."
function abi_version()
    major, minor = Ref{Int32}(0), Ref{Int32}(0)
    LibGangway.gw_abi_version(major, minor)
    return (major = major[], minor = minor[])
end

"The release of the library."
function library_version()
    major, minor, patch = Ref{Int32}(0), Ref{Int32}(0), Ref{Int32}(0)
    LibGangway.gw_version(major, minor, patch)
    return VersionNumber(major[], minor[], patch[])
end

# Texts of unknown length: asked for the size first. `fill(buffer, capacity, out_len)` returns a status.
function whole_text(fill)
    len = Ref{Csize_t}(0)
    check(fill(Ptr{Cchar}(C_NULL), 0, len))
    while true
        buffer = Vector{UInt8}(undef, len[] + 1)
        check(fill(buffer, length(buffer), len))
        # The text may have grown since the size was asked for.
        len[] < length(buffer) && return String(resize!(buffer, len[]))
    end
end

"Every environment variable that the library reads, with its value."
configuration() = whole_text((text, capacity, len) -> LibGangway.gw_config_text(text, capacity, len))

"Bytes of this host: `total`, `available`, `used` by this process; `typemax(UInt64)`: the system does not say."
host_memory() = facts(LibGangway.gw_memory_info, out -> check(LibGangway.gw_host_memory(out)))

"Log lines with a number of at least `first`: `(text, next)`, where `next` is the number to ask for next."
function read_log(first = 0)
    next = Ref{UInt64}(0)
    text = whole_text((text, capacity, len) -> LibGangway.gw_log_read(first, text, capacity, len, next))
    return (text = text, next = next[])
end
