// Requests to break a gang, which a signal handler may make. To break a gang takes locks and memory, and a
// handler may have interrupted the thread that holds them. So the handler only leaves its request, and a
// thread of the library carries it out.
//
// Thread rule: make() and wait_a_while() are async-signal-safe; the rest from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

namespace gangway {

class AbortThread;

// The one request of an object. It is made at most once, because what is broken stays broken.
class AbortRequest {
 public:
  using Act = void (*)(void* object, const char* reason) noexcept;

  // Lets `thread` call act(owner.get(), reason), and keeps `owner` until then. A long reason is cut. Later
  // calls do nothing.
  void make(AbortThread& thread, std::shared_ptr<void> owner, Act act, const char* reason) noexcept;
  // Waits until the request is carried out, but at most 100 ms: the thread may need a lock which the code
  // that a handler has interrupted holds.
  void wait_a_while() const noexcept;
  // Returns the reason of a request that is made but not carried out; null: there is none.
  const char* pending() const noexcept { return state_.load() == State::asked ? reason_.data() : nullptr; }
  // Waits until the request is carried out. Returns at once if none was made. Not for signal handlers.
  void wait() const noexcept {
    if (state_.load(std::memory_order_relaxed) != State::none) [[unlikely]]
      wait_until_done();
  }

 private:
  friend class AbortThread;
  enum class State : int { none, taken, asked, done };
  void wait_until_done() const noexcept;
  void carry_out() noexcept;

  std::atomic<State> state_{State::none};
  std::shared_ptr<void> owner_;
  Act act_ = nullptr;
  AbortRequest* next_ = nullptr;
  std::array<char, 512> reason_{};
};

// The thread that carries out requests. It lives as long as somebody holds it.
class AbortThread {
 public:
  // Returns the thread of this process, and starts it if nobody holds it. GANG: no thread can be started.
  static std::shared_ptr<AbortThread> shared();
  AbortThread();
  ~AbortThread();
  AbortThread(const AbortThread&) = delete;
  AbortThread& operator=(const AbortThread&) = delete;

 private:
  friend class AbortRequest;
  // The thread holds it too, because the last owner of a request may be the last holder of this object.
  struct Queue {
    std::atomic<AbortRequest*> last{nullptr};
    std::atomic<uint32_t> bell{0};
    std::atomic<bool> stop{false};
  };
  static void run(Queue& queue) noexcept;

  std::shared_ptr<Queue> queue_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace gangway
