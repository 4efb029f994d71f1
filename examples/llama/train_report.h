/* What the training example shows: a progress line on a terminal (plain lines elsewhere), losses as CSV and as an SVG
 * picture. Plain C, nothing of gangway. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include <stddef.h>

typedef struct train_point {
  long step;
  double loss;      /* training loss, nats a byte */
  double held_out;  /* loss on held-out text; negative: not taken at this step */
} train_point;

/* Seconds on a clock that only goes forward. */
double seconds_now(void);

/* One progress report: step of steps, loss, speed, time left. On a terminal the line is rewritten in place. */
void show_progress(long step, long steps, double loss, double tokens_per_second, double grad_norm, double seconds);

/* 0, or -1 with errno. */
int write_csv(const char *path, const train_point *points, size_t count);
int write_svg(const char *path, const train_point *points, size_t count);

#endif
