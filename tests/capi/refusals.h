/* Tables of refusals. Each row has a call, its code and a part of its text. A test checks every row and
 * prints all that are wrong. */
#ifndef GANGWAY_TESTS_CAPI_REFUSALS_H
#define GANGWAY_TESTS_CAPI_REFUSALS_H

#include "models.h"

static int wrong_rows;

static MAYBE_UNUSED void check_row(const char* call, gw_status status, gw_status code, const char* part) {
  const char* wrong = wrong_status(status, code, part);
  if (wrong[0] == '\0') return;
  ++wrong_rows;
  print_error("%s: %s\n", call, wrong);
}

static MAYBE_UNUSED void end_of_table(void) {
  const int wrong = wrong_rows;
  wrong_rows = 0;
  if (wrong != 0) fail_msg("%d rows are wrong", wrong);
}

#define ROW(call, code, part) check_row(#call, (call), GW_E_##code, (part))

#endif
