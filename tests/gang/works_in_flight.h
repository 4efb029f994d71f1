// Works in flight that share memory: for each pair of collectives, in both orders, the later one reads what
// the earlier one writes, overwrites what it reads, or overwrites what it writes. The results are those of
// waiting after each call. The same body over every engine.
#pragma once

#include "gang/gang.h"

namespace gangway::test {

void dependent_works(Gang& gang);  // throws when a result is wrong

}  // namespace gangway::test
