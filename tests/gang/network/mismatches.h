// Collectives in which one rank calls something else than all others.
//
// Thread rule: collective over the gang's ranks, each in a process of its own.
#pragma once

#include "gang/gang.h"

namespace gangway::test {

// Makes each kind of difference with each rank as the odd one, in a gang of its own, and throws INTERNAL with
// the kind's name if this rank is not told of it in time.
void every_mismatch_is_told(Gang& root);

}  // namespace gangway::test
