/* NAME=VALUE on a command line; copy it with the example. */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct setting {
  const char *name;
  int32_t *number;      /* where a number goes ... */
  const char *words[4]; /* ... or the place of one of these words */
  const char **text;    /* where any text goes */
} setting;

/* 0: there is no such setting, or its value is none. */
static inline int set(const setting *settings, size_t count, const char *argument) {
  const char *const equals = strchr(argument, '=');
  for (size_t i = 0; equals != NULL && i < count; ++i) {
    const setting *const s = &settings[i];
    const size_t length = (size_t)(equals - argument);
    if (strlen(s->name) != length || strncmp(s->name, argument, length) != 0) continue;
    const char *const value = equals + 1;
    if (s->text != NULL) {
      *s->text = value;
      return 1;
    }
    if (s->words[0] == NULL) {
      char *end = NULL;
      const long number = strtol(value, &end, 10);
      *s->number = (int32_t)number;
      return end != value && *end == '\0' && number >= INT32_MIN && number <= INT32_MAX;
    }
    for (int32_t w = 0; w < 4 && s->words[w] != NULL; ++w) {
      *s->number = w;
      if (strcmp(s->words[w], value) == 0) return 1;
    }
    return 0;
  }
  return 0;
}
