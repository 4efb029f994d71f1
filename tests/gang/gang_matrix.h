// Every operation, form, reduction and type over one gang, whatever its ranks are. Each rank checks what it
// got; a difference is an Error that names the call.
//
// Counts 0, 1, 7 and 4096, in the gang's own memory, in plain memory, and where ranks differ in that.
#pragma once

#include "gang/gang.h"

namespace gangway::test {

void matrix(Gang& gang);
void small_matrix(Gang& gang);  // counts 0, 1 and 7, in plain memory
// Calls of more bytes than are staged at once; of two ranks or more.
void several_chunks(Gang& gang);

}  // namespace gangway::test
