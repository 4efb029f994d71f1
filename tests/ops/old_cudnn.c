// A library that says it is cuDNN 9.10.2.
#include <stddef.h>

__attribute__((visibility("default"))) size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void) { return 91002; }
