#define _POSIX_C_SOURCE 200809L
#include "train_report.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void show_progress(long step, long steps, double loss, double tokens_per_second, double grad_norm, double seconds) {
  const int terminal = isatty(STDOUT_FILENO);
  const double left = seconds / (double)step * (double)(steps - step);
  if (!terminal && step != 1 && step != steps && step % 20 != 0) return;
  printf("%sstep %ld/%ld  loss %.3f  %.0f tokens/s  grad norm %.2f  %d:%02d left%s", terminal ? "\r" : "", step, steps,
         loss, tokens_per_second, grad_norm, (int)left / 60, (int)left % 60,
         terminal ? "\033[K" : "\n");
  if (terminal && step == steps) printf("\n");
  fflush(stdout);
}

int write_csv(const char *path, const train_point *points, size_t count) {
  FILE *file = fopen(path, "w");
  if (file == NULL) return -1;
  fprintf(file, "step,loss,held_out_loss\n");
  for (size_t i = 0; i < count; ++i) {
    fprintf(file, "%ld,%.6f,", points[i].step, points[i].loss);
    if (points[i].held_out >= 0) fprintf(file, "%.6f", points[i].held_out);
    fprintf(file, "\n");
  }
  return fclose(file) == 0 ? 0 : -1;
}

/* Places a point of the curve in the picture's frame. */
static double across(double step, double last) { return 60 + 700 * step / (last > 0 ? last : 1); }
static double down(double loss, double top) { return 360 - 320 * loss / top; }

static void curve(FILE *file, const train_point *points, size_t count, double top, int held_out, const char *colour) {
  const double last = (double)points[count - 1].step;
  fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", colour);
  for (size_t i = 0; i < count; ++i) {
    const double loss = held_out ? points[i].held_out : points[i].loss;
    if (loss >= 0) fprintf(file, "%.1f,%.1f ", across((double)points[i].step, last), down(loss, top));
  }
  fprintf(file, "\"/>\n");
}

int write_svg(const char *path, const train_point *points, size_t count) {
  FILE *file = fopen(path, "w");
  if (file == NULL) return -1;
  double top = 1;
  for (size_t i = 0; i < count; ++i) {
    if (points[i].loss > top) top = points[i].loss;
    if (points[i].held_out > top) top = points[i].held_out;
  }
  fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"400\" font-family=\"sans-serif\" "
                "font-size=\"12\">\n<rect width=\"800\" height=\"400\" fill=\"white\"/>\n");
  for (int i = 0; i <= 4; ++i) {
    const double loss = top * i / 4;
    fprintf(file, "<line x1=\"60\" x2=\"760\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                  "<text x=\"50\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n",
            down(loss, top), down(loss, top), down(loss, top) + 4, loss);
  }
  if (count > 0) {
    curve(file, points, count, top, 0, "#3567a8");
    curve(file, points, count, top, 1, "#c4472b");
    fprintf(file, "<text x=\"760\" y=\"378\" text-anchor=\"end\">step %ld</text>\n", points[count - 1].step);
  }
  fprintf(file, "<text x=\"60\" y=\"378\">0</text>\n<text x=\"640\" y=\"30\" fill=\"#3567a8\">training loss</text>\n"
                "<text x=\"640\" y=\"46\" fill=\"#c4472b\">held-out loss</text>\n"
                "<text x=\"60\" y=\"20\">loss, nats a byte</text>\n</svg>\n");
  return fclose(file) == 0 ? 0 : -1;
}
