/* DLPack 1.0's exchange struct, as a user's dlpack.h has it. */
#ifndef GANGWAY_TESTS_CAPI_DLPACK_H
#define GANGWAY_TESTS_CAPI_DLPACK_H

#include <gangway/view.h>

struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags; /* 1: read-only */
  gw_view tensor;
};

#endif
