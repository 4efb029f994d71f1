// What the software GPU tells sanitizers. GPU_EMULATION_ADDRESS or GPU_EMULATION_THREAD is defined if a file
// is compiled for that sanitizer.
//
// The thread sanitizer concludes from each lock that one thread comes after another. A GPU has no such locks.
// So the software GPU hides its locks from the sanitizer (Unseen) and announces only the orders that a GPU
// guarantees: those of streams and of events (give, take).
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GPU_EMULATION_ADDRESS
#elif __has_feature(thread_sanitizer)
#define GPU_EMULATION_THREAD
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define GPU_EMULATION_ADDRESS
#elif defined(__SANITIZE_THREAD__)
#define GPU_EMULATION_THREAD
#endif

#if defined(GPU_EMULATION_THREAD)
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void __tsan_acquire(void* place);
void __tsan_release(void* place);
}
#endif

namespace gpu_emulation {

#if defined(GPU_EMULATION_THREAD)

// Hides the thread's reads, writes and locks from the sanitizer for the lifetime of this object.
class Unseen {
 public:
  Unseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  }
  ~Unseen() {
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};
// Everything before a give() of a place is ordered before everything after a later take() of that place.
inline void give(const void* place) { __tsan_release(const_cast<void*>(place)); }
inline void take(const void* place) { __tsan_acquire(const_cast<void*>(place)); }

#else

class Unseen {
 public:
  Unseen() {}
};
inline void give(const void*) {}
inline void take(const void*) {}

#endif

}  // namespace gpu_emulation
