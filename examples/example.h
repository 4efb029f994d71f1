/* What the examples share; copy it with them. */
#pragma once
#include <gangway/gangway.h>
#include <stdio.h>
#include <stdlib.h>

#define WITH_DEFAULTS(type, name) type name; type##_init(&name, sizeof name) /* an options or result struct */
/* Ends the program with the library's text when a call failed; peers hear at once that this rank left. */
static inline void check(gw_status status) {
  if (status == GW_OK) return;
  fprintf(stderr, "%s\n", gw_last_error_text());
  exit(1);
}
