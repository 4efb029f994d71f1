// Which build of the library this is.
//
// Thread rule: any thread.
#pragma once

namespace gangway {

// Returns 16 hexadecimal digits, a hash of all sources of the library and of the compiler. All ranks of a
// gang must have the same (gang/rendezvous/identity.h).
const char* library_build();

}  // namespace gangway
