#include "base/refusal.h"

#include <new>

namespace gangway {

Error current_error() noexcept {
  Code code = Code::internal;
  try {
    try {
      throw;
    } catch (const Error& error) {
      code = error.code();
      return error;
    } catch (const std::bad_alloc&) {
      code = Code::out_of_memory;
    } catch (const std::exception& error) {
      return Error(code, text("a check ended with: ", error.what()));
    }
  } catch (const std::exception&) {  // There is no memory for the text.
  }
  return Error(code, "no memory");  // The text is short enough that std::string allocates nothing.
}

}  // namespace gangway
