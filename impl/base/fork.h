// After fork() the child has the parent's gangs but none of its threads, sockets or place in the gang, so
// every call there is refused. The guard is armed by the first gang of the process: a program may fork its
// ranks before that. Thread rule: any thread.
#pragma once

namespace gangway {

void arm_fork_guard();         // once per process; later calls cost one load
bool forked_child() noexcept;  // this process was forked after the guard was armed
void check_fork();             // throws Error{forked} in such a child

}  // namespace gangway
