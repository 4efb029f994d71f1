/* What the examples share; copy it with them. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <gangway/gangway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Declares an options or result struct with its defaults. */
#define WITH_DEFAULTS(type, name) \
  type name;                      \
  type##_init(&name, sizeof name)

/* Ends the program with the library's text when a call failed; peers hear at once that this rank left. */
static inline void check(gw_status status) {
  if (status == GW_OK) return;
  WITH_DEFAULTS(gw_error_info, error);
  gw_last_error(&error);
  fprintf(stderr, "%s: %s\n", gw_status_name(status), error.message);
  exit(1);
}

#endif
