/* Pieces [3, 7, 4] on a grid of 2 x 2 x 3 workers are joined along the last dim; then the adjoint.
 *   gangrun -n 12 05_partition_all_gather */
#include "example.h"

enum { kPiece = 3 * 7 * 4, kJoined = 3 * 7 * 12 };
static const int64_t kPieceShape[] = {3, 7, 4}, kJoinedShape[] = {3, 7, 12};

/* <a, b>, summed over all workers. */
static double inner(gw_gang *gang, const double *a, const double *b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  check(gw_gang_all_sum(gang, sum, &sum));
  return sum;
}

int main(void) {
  gw_gang *gang = NULL;
  gw_partition *workers = NULL, *grid = NULL;
  gw_movement *gather = NULL;
  const int32_t shape[] = {2, 2, 3}, last_dim = 2;
  check(gw_gang_create(NULL, &gang));
  check(gw_partition_create(gang, &workers));
  check(gw_partition_cartesian(workers, shape, 3, &grid)); /* refuses any other number of ranks than 12 */
  WITH_DEFAULTS(gw_movement_options, along);
  along.axes = &last_dim;
  along.axis_count = 1;
  check(gw_movement_create(grid, NULL, GW_MOVEMENT_ALL_GATHER, &along, &gather));

  double x[kPiece], y[kJoined]; /* made-up numbers that differ between ranks and places */
  const int rank = gw_gang_rank(gang);
  for (int i = 0; i < kPiece; ++i) x[i] = (rank + 3) * (i + 1) * 7919 % 2003 / 1000.0 - 1;
  for (int i = 0; i < kJoined; ++i) y[i] = (rank + 5) * (i + 1) * 6271 % 1999 / 1000.0 - 1;
  gw_view piece, joined, dy, dx;
  gw_tensor *forward = NULL, *backward = NULL;
  check(gw_view_set(&piece, x, kPieceShape, 3, GW_F64));
  check(gw_movement_forward(gather, &piece, NULL, &forward)); /* [3, 7, 12] */
  check(gw_tensor_view(forward, &joined));
  check(gw_view_set(&dy, y, kJoinedShape, 3, GW_F64));
  check(gw_movement_backward(gather, &dy, NULL, &backward)); /* [3, 7, 4] */
  check(gw_tensor_view(backward, &dx));

  const double left = inner(gang, joined.data, y, kJoined), right = inner(gang, x, dx.data, kPiece);
  const double error = left > right ? left - right : right - left;
  if (rank == 0)
    printf("[3, 7, %d]: <F x, y> = %.9f, <x, F* y> = %.9f\n", (int)joined.shape[2], left, right);
  gw_tensor_release(forward);
  gw_tensor_release(backward);
  gw_movement_release(gather);
  gw_partition_release(grid);
  gw_partition_release(workers);
  check(gw_gang_shutdown(gang, -1));
  gw_gang_release(gang);
  return error < 1e-9 ? 0 : 1;
}
