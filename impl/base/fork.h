// The guard against use after fork(). A child has the parent's gangs, but none of its threads or sockets and
// no place in the gang, so every call there is refused. The first gang of the process arms the guard, or
// the first thread that reads a dataset: a program may fork its ranks before that.
//
// Thread rule: any thread.
#pragma once

namespace gangway {

// Arms the guard once per process. Later calls cost one load.
void arm_fork_guard();
// Returns whether this process was forked after the guard was armed.
bool forked_child() noexcept;
// Throws Error{forked} in such a child.
void check_fork();

}  // namespace gangway
