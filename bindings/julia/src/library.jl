# Finding the library and refusing one that is too old or too new.

include("level.jl")

# GANGWAY_LIBRARY, then the preference "library" (Julia 1.6 and later read LocalPreferences.toml), then an installed one.
function library_path()
    haskey(ENV, "GANGWAY_LIBRARY") && return ENV["GANGWAY_LIBRARY"]
    if isdefined(Base, :get_preferences)
        uuid = Base.PkgId(@__MODULE__).uuid
        found = uuid === nothing ? nothing : get(Base.get_preferences(uuid), "library", nothing)
        found === nothing || return found
    end
    return installed_library()
end

# By its name on the loader's path, else where pkg-config finds gangway.pc.
function installed_library()
    Libdl.dlopen(LIBRARY, LOADER_FLAGS; throw_error = false) === nothing || return LIBRARY
    folder = try
        readchomp(pipeline(`pkg-config --variable=libdir gangway`; stderr = devnull))
    catch # no such program, or no such package
        return LIBRARY
    end
    found = joinpath(folder, LIBRARY)
    return isfile(found) ? found : LIBRARY
end

# Without RTLD_DEEPBIND, Julia's default: where Julia itself brings a libunwind (Debian), libstdc++ unwinds by that one, and
# a library bound to libgcc's would abort at its first exception.
const LOADER_FLAGS = Libdl.RTLD_LAZY | Libdl.RTLD_LOCAL

function load_library()
    path = library_path()
    handle = Libdl.dlopen(path, LOADER_FLAGS; throw_error = false)
    handle === nothing && error("Gangway: cannot open $path: install libgangway and run ldconfig, let pkg-config find gangway.pc ",
                                "(PKG_CONFIG_PATH), or name the library's file in GANGWAY_LIBRARY or the preference `library`")
    range = Libdl.dlsym(handle, :gw_abi_range; throw_error = false)
    range === nothing && error("Gangway: $path is no Gangway library: it has no gw_abi_range")
    major, minor, patch = Ref{Int32}(-1), Ref{Int32}(-1), Ref{Int32}(-1)
    ccall(Libdl.dlsym(handle, :gw_version), Cvoid, (Ptr{Int32}, Ptr{Int32}, Ptr{Int32}), major, minor, patch)
    release = VersionNumber(major[], minor[], patch[])
    ccall(Libdl.dlsym(handle, :gw_abi_version), Cvoid, (Ptr{Int32}, Ptr{Int32}), major, minor)
    check_version(path, release, major[], minor[])
    LibGangway.open_library(path)
    return nothing
end

# Of the same major level, and of no lower minor one. Level 0 is open, so there the release has to be the same, up to its last
# part.
function check_version(path, release, major, minor)
    same_release = (release.major, release.minor) == (RELEASE.major, RELEASE.minor)
    major == ABI_MAJOR && minor >= ABI_MINOR && (ABI_MAJOR > 0 || same_release) && return nothing
    error("Gangway: $path is libgangway $release (ABI level $major.$minor), which does not fit Gangway.jl $RELEASE ",
          "(ABI level $ABI_MAJOR.$ABI_MINOR): install the library and the package of one release")
end

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
