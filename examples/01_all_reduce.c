/* All-reduce over the ranks of a gang.
 *   gangrun -n 4 01_all_reduce */
#include "example.h"

int main(void) {
  const size_t n = 1000;
  gw_gang *gang = NULL;
  check(gw_gang_create(NULL, &gang)); /* the environment decides; nothing set: one rank */

  void *memory = NULL; /* peers reach this memory directly; any other works too */
  check(gw_gang_alloc(gang, n * sizeof(float), &memory));
  float *x = memory;
  for (size_t i = 0; i < n; ++i) x[i] = (float)(gw_gang_rank(gang) + 1);

  check(gw_gang_all_reduce(gang, x, x, n, GW_F32, GW_SUM, NULL));
  printf("rank %d of %d: sum %g\n", gw_gang_rank(gang), gw_gang_size(gang), x[0]);

  gw_work *work = NULL; /* the same, while this rank does something else */
  check(gw_gang_all_reduce_async(gang, x, x, n, GW_F32, GW_MAX, NULL, &work));
  check(gw_work_wait(work, -1));
  gw_work_release(work);

  gw_gang_free(gang, memory);
  check(gw_gang_shutdown(gang, -1));
  gw_gang_release(gang);
  return 0;
}
