/* All-reduce over the ranks of a gang.
 *   gangrun -n 4 01_all_reduce */
#include <gangway/gangway.h>
#include <stdio.h>

static int report(void) {
  gw_error_info e;
  gw_error_info_init(&e, sizeof e);
  gw_last_error(&e);
  fprintf(stderr, "%s: %s\n", gw_status_name(e.code), e.message);
  return 1;
}

int main(void) {
  const size_t n = 1000;
  gw_gang *gang = NULL;
  if (gw_gang_create(NULL, &gang) != GW_OK) return report(); /* the environment decides; nothing set: one rank */

  void *memory = NULL; /* peers reach this memory directly; any other works too */
  if (gw_gang_alloc(gang, n * sizeof(float), &memory) != GW_OK) return report();
  float *x = memory;
  for (size_t i = 0; i < n; ++i) x[i] = (float)(gw_gang_rank(gang) + 1);

  if (gw_gang_all_reduce(gang, x, x, n, GW_F32, GW_SUM, NULL) != GW_OK) return report();
  printf("rank %d of %d: sum %g\n", gw_gang_rank(gang), gw_gang_size(gang), x[0]);

  gw_work *work = NULL; /* the same, while this rank does something else */
  if (gw_gang_all_reduce_async(gang, x, x, n, GW_F32, GW_MAX, NULL, &work) != GW_OK) return report();
  if (gw_work_wait(work, -1) != GW_OK) return report();
  gw_work_release(work);

  gw_gang_free(gang, memory);
  if (gw_gang_shutdown(gang, -1) != GW_OK) return report();
  gw_gang_release(gang);
  return 0;
}
