/* DLPack's exchange structs, of versions 0 and 1. gw_view is DLTensor byte for byte. */
#ifndef GANGWAY_PYTHON_DLPACK_H
#define GANGWAY_PYTHON_DLPACK_H

enum { kReadOnlyFlag = 1, kCopiedFlag = 2 };

struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* managed);
  uint64_t flags;
  gw_view tensor;
};

typedef struct OldManaged {
  gw_view tensor;
  void* manager_ctx;
  void (*deleter)(struct OldManaged* managed);
} OldManaged;

#endif
