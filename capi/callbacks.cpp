#include "callbacks.h"

#include <new>

namespace gangway::capi {

namespace {

thread_local CallbackText* innermost_callback = nullptr;
thread_local bool thread_is_ending = false;  // a callback has ended the thread

}  // namespace

CallbackText::CallbackText() noexcept : outer_(std::exchange(innermost_callback, this)) {}
CallbackText::~CallbackText() { innermost_callback = outer_; }
CallbackText* CallbackText::innermost() noexcept { return innermost_callback; }

void check_callback(gw_status status, const char* callback, const std::string& owner,
                    const std::string& said) {
  if (status == GW_OK) return;
  const Code code =
      status > 0 && status <= static_cast<int32_t>(Code::busy) ? static_cast<Code>(status) : Code::caller;
  // A callback that set no text passes on the failure of a call that it made, whose text says more.
  const LastError& last = last_error();
  const std::string inner = !said.empty()                              ? ": " + said
                            : last.error && last.error->code() == code ? ": " + last.error->message()
                                                                       : "";
  fail(code, owner, ": its ", callback, " callback returned ", status, " (", gw_status_name(status), ")",
       inner);
}

void thread_ends() noexcept { thread_is_ending = true; }

void check_thread_lives(const char* callback, const std::string& owner) {
  if (thread_is_ending)
    fail(Code::aborted, owner, ": its ", callback, " callback is not called: the thread ended in a callback");
}

void callback_threw(const char* callback, const std::string& owner) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail(Code::out_of_memory, owner, ": its ", callback, " callback had no memory left");
  } catch (const std::exception& error) {
    fail(Code::internal, owner, ": its ", callback, " callback threw: ", error.what());
  } catch (...) {
    fail(Code::internal, owner, ": its ", callback, " callback threw an unknown exception");
  }
}

}  // namespace gangway::capi
