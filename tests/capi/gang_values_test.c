/* Every collective, dtype, reduction, form and size over memory of the gang's device: each element of the
 * output is right, and nothing after the output is written. */
#include <math.h>

#include "device_memory.h"

enum { kGuard = 64, kLarge = 30011, kMostOfAnItem = 16, kMostRanks = 4 };

/* --- one element as bytes --- */

static int reducible(gw_dtype dtype) {
  static const gw_dtype all[] = {GW_F64, GW_F32, GW_BF16, GW_F16, GW_I64, GW_I32, GW_U8, GW_BOOL};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (all[i] == dtype) return 1;
  return 0;
}
static int floating(gw_dtype dtype) {
  return dtype == GW_F64 || dtype == GW_F32 || dtype == GW_BF16 || dtype == GW_F16;
}

/* The bits of zero, or of a normal number that f16 holds exactly. */
static uint16_t f16_bits(double value) {
  int exponent = 0;
  const double part = frexp(fabs(value), &exponent); /* in [0.5, 1) */
  const int sign = signbit(value) ? 0x8000 : 0;
  if (part == 0) return (uint16_t)sign;
  return (uint16_t)(sign | (exponent + 14) << 10 | (int)((part * 2 - 1) * 1024));
}
/* The upper half of the bits as f32. */
static uint16_t bf16_bits(double value) {
  const float narrow = (float)value;
  uint32_t word;
  memcpy(&word, &narrow, sizeof word);
  return (uint16_t)(word >> 16);
}
#define PUT(type, value)             \
  do {                               \
    const type put_ = (type)(value); \
    memcpy(to, &put_, sizeof put_);  \
    return;                          \
  } while (0)
static void encode(gw_dtype dtype, double value, char* to) {
  switch (dtype) {
    case GW_F64: PUT(double, value);
    case GW_F32: PUT(float, value);
    case GW_BF16: PUT(uint16_t, bf16_bits(value));
    case GW_F16: PUT(uint16_t, f16_bits(value));
    case GW_I64: PUT(int64_t, value);
    case GW_I32: PUT(int32_t, value);
    case GW_U8:
    case GW_BOOL: PUT(uint8_t, (uint64_t)value); /* it wraps around */
    default:                                     /* bytes that are only moved */
      for (size_t k = 0; k < gw_dtype_bytes(dtype); ++k) to[k] = (char)(37 * ((int)value + 3) + 5 * (int)k);
  }
}

/* Element i of a rank's input. It is small, so that sums, products and means of four ranks are exact. */
static double element(gw_dtype dtype, int32_t rank, size_t i) {
  const int small = (int)((i * 7 + (size_t)rank * 3 + i / 5) % 5) - 2;
  if (dtype == GW_BOOL) return small > 0;
  return dtype == GW_U8 ? (uint8_t)small : small;
}

/* --- one call --- */

enum form { APART, IN_PLACE, ADDING, COUNTED, kForms };
typedef struct call {
  gw_op op;
  gw_dtype dtype;
  gw_reduce reduce;
  enum form form;
  size_t count;
  int32_t root;
  char *in, *out; /* on the gang's device */
  char *host, *wanted;
} call;

static int reduces(gw_op op) { return op == GW_ALL_REDUCE || op == GW_REDUCE || op == GW_REDUCE_SCATTER; }
static int rooted(gw_op op) {
  return op == GW_BROADCAST || op == GW_REDUCE || op == GW_GATHER || op == GW_SCATTER;
}
static int counted(gw_op op) {
  return op == GW_ALL_GATHER || op == GW_REDUCE_SCATTER || op == GW_GATHER || op == GW_SCATTER ||
         op == GW_ALL_TO_ALL;
}
static int has_form(const call* c) {
  switch (c->form) {
    case IN_PLACE: return c->op != GW_ALL_TO_ALL && c->op != GW_SEND;
    case ADDING: return reduces(c->op) && floating(c->dtype);
    case COUNTED: return counted(c->op);
    default: return 1;
  }
}

/* The number of elements that `from` sends to `to`, or the number of `from`'s elements if all ranks get the
 * same. */
static size_t part(const call* c, int32_t from, int32_t to) {
  if (c->form != COUNTED) return c->count;
  return c->count + (size_t)(c->op == GW_ALL_TO_ALL ? (from + 2 * to) % 3 : from % 3);
}
static size_t before(const call* c, int32_t rank) {
  size_t sum = 0;
  for (int32_t r = 0; r < rank; ++r) sum += part(c, r, 0);
  return sum;
}

static double folded(const call* c, size_t i, int32_t size) {
  double all = element(c->dtype, 0, i);
  for (int32_t r = 1; r < size; ++r) {
    const double x = element(c->dtype, r, i);
    if (c->reduce == GW_SUM || c->reduce == GW_MEAN) all += x;
    if (c->reduce == GW_PRODUCT) all *= x;
    if (c->reduce == GW_MIN) all = x < all ? x : all;
    if (c->reduce == GW_MAX) all = x > all ? x : all;
  }
  return c->reduce == GW_MEAN ? all / size : all;
}

static const double kBase = 3; /* what an ADDING call adds to */

/* Appends expected elements after the first `n` of c->wanted. Returns the new number. */
static size_t take_elements(const call* c, size_t n, int32_t from, size_t first, size_t count) {
  const size_t item = gw_dtype_bytes(c->dtype);
  for (size_t i = 0; i < count; ++i)
    encode(c->dtype, element(c->dtype, from, first + i), c->wanted + (n + i) * item);
  return n + count;
}
static size_t fold_elements(const call* c, size_t first, size_t count, int32_t size) {
  const size_t item = gw_dtype_bytes(c->dtype);
  for (size_t i = 0; i < count; ++i)
    encode(c->dtype, c->form == ADDING ? kBase + folded(c, first + i, size) : folded(c, first + i, size),
           c->wanted + i * item);
  return count;
}

/* Fills c->wanted and returns the number of its elements. */
static size_t want(const call* c, int32_t rank, int32_t size) {
  size_t n = 0;
  const int is_root = rank == c->root;
  switch (c->op) {
    case GW_ALL_REDUCE: return fold_elements(c, 0, c->count, size);
    case GW_REDUCE: return is_root ? fold_elements(c, 0, c->count, size) : 0;
    case GW_REDUCE_SCATTER: return fold_elements(c, before(c, rank), part(c, rank, 0), size);
    case GW_BROADCAST: return take_elements(c, 0, c->root, 0, c->count);
    case GW_SCATTER: return take_elements(c, 0, c->root, before(c, rank), part(c, rank, 0));
    case GW_GATHER:
    case GW_ALL_GATHER:
      for (int32_t r = 0; r < size && (c->op == GW_ALL_GATHER || is_root); ++r)
        n = take_elements(c, n, r, 0, part(c, r, 0));
      return n;
    default: /* all to all */
      for (int32_t r = 0; r < size; ++r) {
        size_t first = 0;
        for (int32_t to = 0; to < rank; ++to) first += part(c, r, to);
        n = take_elements(c, n, r, first, part(c, r, rank));
      }
      return n;
  }
}

static size_t inputs(const call* c, int32_t rank, int32_t size) {
  size_t n = 0;
  switch (c->op) {
    case GW_ALL_REDUCE:
    case GW_REDUCE: return c->count;
    case GW_BROADCAST: return rank == c->root ? c->count : 0;
    case GW_ALL_GATHER:
    case GW_GATHER: return part(c, rank, 0);
    case GW_SCATTER: return rank == c->root ? before(c, size) : 0;
    case GW_REDUCE_SCATTER: return before(c, size);
    default:
      for (int32_t to = 0; to < size; ++to) n += part(c, rank, to);
      return n;
  }
}

/* The offset in elements from the input to an output that is in place, or from the output to the input. */
static size_t own_place(const call* c, int32_t rank) {
  return c->op == GW_ALL_REDUCE || c->op == GW_REDUCE || c->op == GW_BROADCAST ? 0 : before(c, rank);
}

static void collect(rank* me, call* c) {
  const int32_t size = me->size, r = me->index;
  const size_t item = gw_dtype_bytes(c->dtype), sent = inputs(c, r, size);
  const size_t got = want(c, r, size);
  memset(c->wanted + got * item, 0x5a, kGuard);
  for (size_t i = 0; i < sent; ++i) encode(c->dtype, element(c->dtype, r, i), c->host + i * item);
  size_t counts[2 * kMostRanks];
  for (int32_t i = 0; i < size; ++i) {
    counts[i] = c->op == GW_ALL_TO_ALL ? part(c, r, i) : part(c, i, 0);
    counts[size + i] = part(c, i, r);
  }
  gw_collective record;
  gw_collective_init(&record, sizeof record);
  record.op = c->op;
  record.dtype = c->dtype;
  record.reduce = c->reduce;
  record.count = c->form == COUNTED ? 0 : c->count;
  record.counts = c->form == COUNTED ? counts : NULL;
  record.peer = rooted(c->op) ? c->root : -1;
  record.accumulate = c->form == ADDING;
  record.input = c->in;
  record.output = c->out;
  const int gathers = c->op == GW_ALL_GATHER || c->op == GW_GATHER;
  if (c->form == IN_PLACE && gathers && got != 0) record.input = c->out + own_place(c, r) * item;
  if (c->form == IN_PLACE && !gathers) record.output = c->in + own_place(c, r) * item;
  char* const out = record.output;
  /* The output's guard is written first: an output inside the input is followed by more of the input. */
  char guard[kGuard];
  memset(guard, 0x5a, sizeof guard);
  write_bytes(me->gang, out + got * item, guard, sizeof guard);
  if (c->form == ADDING) {
    char three[kMostOfAnItem];
    encode(c->dtype, kBase, three);
    char* const base = c->host + (sent + got) * item;
    for (size_t i = 0; i < got; ++i) memcpy(base + i * item, three, item);
    write_bytes(me->gang, out, base, got * item);
  }
  write_bytes(me->gang, (void*)(uintptr_t)record.input, c->host, sent * item);
  EXPECT_OK(gw_gang_run(me->gang, &record, NULL, NULL));
  /* An output inside the input is followed by the input, not by a guard. */
  const size_t after = c->form == IN_PLACE && out + got * item < c->in + sent * item && !gathers ? 0 : kGuard;
  const size_t bytes = got * item + after;
  read_bytes(me->gang, c->host, out, bytes);
  if (memcmp(c->host, c->wanted, bytes) == 0) return;
  size_t at = 0;
  while (c->host[at] == c->wanted[at]) ++at;
  snprintf(me->failure, sizeof me->failure,
           "op %d, dtype %#x, reduce %d, form %d, %zu elements, rank %d of %d: byte %zu of %zu is %d, not %d",
           (int)c->op, (unsigned)c->dtype, (int)c->reduce, (int)c->form, c->count, (int)r, (int)size, at,
           bytes, c->host[at], c->wanted[at]);
  gw_gang_abort(me->gang, me->failure);
}

/* Sends and receives around the ring in one launch on each rank. */
static void pass_around(rank* me, call* c) {
  const int32_t next = (me->index + 1) % me->size, last = (me->index + me->size - 1) % me->size;
  const size_t item = gw_dtype_bytes(c->dtype), bytes = c->count * item;
  gw_collective both[2];
  for (int i = 0; i < 2; ++i) {
    gw_collective_init(&both[i], sizeof both[i]);
    both[i].dtype = c->dtype;
    both[i].count = c->count;
  }
  both[0].op = GW_SEND, both[0].peer = next, both[0].input = c->in;
  both[1].op = GW_RECV, both[1].peer = last, both[1].output = c->out;
  take_elements(c, 0, me->index, 0, c->count);
  write_bytes(me->gang, c->in, c->wanted, bytes);
  take_elements(c, 0, last, 0, c->count);
  memset(c->wanted + bytes, 0x5a, kGuard);
  write_bytes(me->gang, c->out + bytes, c->wanted + bytes, kGuard);
  EXPECT_OK(gw_gang_run_batch(me->gang, both, 2, NULL, NULL));
  read_bytes(me->gang, c->host, c->out, bytes + kGuard);
  EXPECT(memcmp(c->host, c->wanted, bytes + kGuard) == 0);
}

/* --- all calls --- */

/* The dtypes that are reduced come first. One dtype of each size has every form and count. */
static const struct {
  gw_dtype dtype;
  int every;
} kTypes[] = {{GW_F64, 1}, {GW_F32, 1},  {GW_BF16, 1}, {GW_F16, 0},     {GW_I64, 0},    {GW_I32, 0},
              {GW_U8, 1},  {GW_BOOL, 0}, {GW_I8, 0},   {GW_I16, 0},     {GW_U16, 0},    {GW_U32, 0},
              {GW_U64, 0}, {GW_C64, 0},  {GW_C128, 1}, {GW_F8_E4M3, 0}, {GW_F8_E5M2, 0}};
enum { kTypesInAll = sizeof kTypes / sizeof *kTypes };

static void each_form_and_count(rank* me, call* c, int every, void (*run)(rank*, call*)) {
  static const size_t counts[] = {7, 0, 1, 4097, kLarge};
  for (int form = 0; form < (every ? kForms : 1); ++form) {
    c->form = (enum form)form;
    if (!has_form(c)) continue;
    for (int i = 0; i < (every ? 5 : 1); ++i) {
      c->count = counts[i];
      c->root = i % me->size;
      run(me, c);
      if (me->failure[0] != '\0') return;
    }
  }
}

static void with_memory(rank* me, void (*run)(rank*, call*)) {
  const size_t room = (size_t)kMostRanks * (kLarge + 2) * kMostOfAnItem + kGuard;
  call c = {.host = malloc(2 * room), .wanted = malloc(room)};
  EXPECT_OK(gw_gang_alloc(me->gang, room, (void**)&c.in));
  EXPECT_OK(gw_gang_alloc(me->gang, room, (void**)&c.out));
  EXPECT_OK(gw_gang_barrier(me->gang, NULL)); /* more than two ranks of GPUs need a barrier before a send */
  run(me, &c);
  gw_gang_free(me->gang, c.in);
  gw_gang_free(me->gang, c.out);
  free(c.host);
  free(c.wanted);
}

static void each_reduction(rank* me, call* c) {
  static const gw_op ops[] = {GW_ALL_REDUCE, GW_REDUCE, GW_REDUCE_SCATTER};
  for (int op = 0; op < 3; ++op)
    for (int type = 0; type < kTypesInAll && reducible(kTypes[type].dtype); ++type)
      for (gw_reduce reduce = GW_SUM; reduce <= GW_MAX; ++reduce) {
        c->op = ops[op];
        c->dtype = kTypes[type].dtype;
        c->reduce = reduce;
        if (reduce == GW_MEAN && !floating(c->dtype)) continue;
        if (c->dtype == GW_BOOL && reduce != GW_MIN && reduce != GW_MAX) continue;
        each_form_and_count(me, c, reduce == GW_SUM, collect);
        if (me->failure[0] != '\0') return;
      }
}
static void reductions(rank* me) { with_memory(me, each_reduction); }

static void each_movement(rank* me, call* c) {
  static const gw_op ops[] = {GW_BROADCAST, GW_ALL_GATHER, GW_GATHER, GW_SCATTER, GW_ALL_TO_ALL};
  for (int op = 0; op < 5; ++op)
    for (int type = 0; type < kTypesInAll; ++type) {
      c->op = ops[op];
      c->dtype = kTypes[type].dtype;
      each_form_and_count(me, c, kTypes[type].every, collect);
      if (me->failure[0] != '\0') return;
    }
}
static void movements(rank* me) { with_memory(me, each_movement); }

static void each_message(rank* me, call* c) {
  for (int type = 0; type < kTypesInAll; ++type) {
    c->op = GW_SEND;
    c->dtype = kTypes[type].dtype;
    each_form_and_count(me, c, kTypes[type].every, pass_around);
    if (me->failure[0] != '\0') return;
  }
}
static void messages(rank* me) { with_memory(me, each_message); }

static void reductions_equal_a_serial_fold(void** state) {
  (void)state;
  for (int32_t n = 1; n <= kMostRanks; n *= 2) run_ranks(n, reductions, NULL);
}
static void movements_bring_every_byte_to_its_place(void** state) {
  (void)state;
  for (int32_t n = 1; n <= kMostRanks; n *= 2) run_ranks(n, movements, NULL);
}
static void messages_bring_every_byte(void** state) {
  (void)state;
  for (int32_t n = 2; n <= kMostRanks; n *= 2) run_ranks(n, messages, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {test_on_device(reductions_equal_a_serial_fold),
                                     test_on_device(movements_bring_every_byte_to_its_place),
                                     test_on_device(messages_bring_every_byte)};
  return cmocka_run_group_tests_name("capi_gang_values", tests, NULL, NULL);
}
