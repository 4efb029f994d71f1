// What the software GPU tells sanitizers, and which one a file is compiled for: GPU_EMULATION_ADDRESS, GPU_EMULATION_THREAD,
// or none of the two.
//
// The thread sanitizer takes each lock for an order of the two threads. A GPU has no such locks, so the software GPU hides its
// own from the sanitizer (Unseen), and tells it the orders that a GPU has (give, take): of a stream, and of events.
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

// While one lives, what this thread reads, writes and locks is not looked at.
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
// What came before a give() of a place comes before what follows a take() of it.
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
