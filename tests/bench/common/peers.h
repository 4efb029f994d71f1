// The other sides: how they are installed, compiled and launched. What is not there is said, never pretended.
#pragma once

#include <string>

namespace gangway::bench {

// The path of a file in the folder of the running program.
std::string beside_this_program(const std::string& name);

// Runs peers/install.sh with the folder that programs and the Python environment go into; false when it
// fails.
bool install_peers(const std::string& what);  // "collectives" or "train"

// Compiles a peer's source with `compiler` ("mpicc.openmpi -O2") into the benchmark's own folder, once for
// each version of the source. The program's path; "" with `why`.
std::string compile_peer(const std::string& source, const std::string& name, const std::string& compiler,
                         const std::string& libraries, std::string* why);

// The Python that has PyTorch: $GANGWAY_BENCH_PYTHON, else what install_peers made, else python3 when it
// imports torch; "" when there is none.
std::string torch_python();

// The path of a file of tests/bench/peers: of the one beside this program, if it was packed for another machine.
std::string peer_source(const std::string& name);

}  // namespace gangway::bench
