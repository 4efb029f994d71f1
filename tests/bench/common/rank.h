/* A rank's end of the driver's socket: one command a line, one reply a line. C11 and C++, no library: peers
 * use it too. A rank that is not asked sleeps in read(), so that all sides of a comparison can live at the
 * same time. The first include of a C source: it needs _GNU_SOURCE. */
#ifndef BENCH_RANK_H
#define BENCH_RANK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef struct bench_driver {
  int fd;
  FILE* in;
} bench_driver;

static inline double bench_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Time that the calling thread, or the whole process, has spent on a processor: says something on a busy
 * machine, too. */
static inline double bench_cpu_seconds(int whole_process) {
  struct timespec now;
  clock_gettime(whole_process ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Rank r runs on the r-th processor that it may use, when there is one for each rank. */
static inline void bench_pin(int rank, int ranks) {
  cpu_set_t may, one;
  if (sched_getaffinity(0, sizeof may, &may) != 0 || CPU_COUNT(&may) < ranks) return;
  for (int cpu = 0, left = rank; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &may) || left-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

static inline void bench_fill(float* x, size_t count, unsigned seed) {
  uint32_t h = seed * 2654435761u + 12345u;
  for (size_t i = 0; i < count; ++i) {
    h = h * 1664525u + 1013904223u;
    x[i] = (float)(int32_t)h * 4.6566129e-10f; /* [-1, 1) */
  }
}

/* Whether the driver was reached. */
static inline int bench_reply(bench_driver* driver, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
static inline int bench_reply(bench_driver* driver, const char* format, ...) {
  char line[4096];
  va_list list;
  va_start(list, format);
  int length = vsnprintf(line, sizeof line - 1, format, list);
  va_end(list);
  if (length < 0) return 0;
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  for (int i = 0; i < length; ++i)
    if (line[i] == '\n') line[i] = ' ';
  line[length++] = '\n';
  return send(driver->fd, line, (size_t)length, MSG_NOSIGNAL) == length;
}

/* Says who this is: "hello RANK PID TEXT". Ends the process where there is no driver. */
static inline bench_driver bench_connect(const char* path, int rank, const char* text) {
  bench_driver driver = {socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), NULL};
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  if (driver.fd < 0 || connect(driver.fd, (struct sockaddr*)&address, sizeof address) != 0) {
    perror(path);
    exit(1);
  }
  driver.in = fdopen(driver.fd, "r");
  bench_reply(&driver, "hello %d %ld %s", rank, (long)getpid(), text);
  return driver;
}

/* Next command without its end of line; 0: the driver is done. */
static inline int bench_command(bench_driver* driver, char* line, int capacity) {
  if (fgets(line, capacity, driver->in) == NULL) return 0;
  line[strcspn(line, "\n")] = 0;
  return strcmp(line, "quit") != 0;
}

#endif
