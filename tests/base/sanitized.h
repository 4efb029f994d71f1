// Whether a sanitizer watches this program: it needs address space and descriptors of its own, so tests that take
// these away skip themselves.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GANGWAY_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GANGWAY_TEST_SANITIZED
#endif
#endif
