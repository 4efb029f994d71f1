/* The exchange struct of DLPack 1.0, as it is in a user's dlpack.h. */
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
