#include "parallel/or_abort.h"

#include <new>

namespace gangway {
namespace {

// Inside a catch block: the failure with the place where it happened.
Error caught(const Gang& root, const char* call) {
  Error told(Code::internal, "");
  try {
    throw;
  } catch (const Error& error) {
    // A gang's own error, perhaps a peer's that came through it, already says where it happened.
    if (!error.gang.empty()) return error;
    told = Error(error.code(), text(call, ": rank ", root.rank(), ": ", error.message()));
    told.system_error = error.system_error;
  } catch (const std::bad_alloc&) {
    told = Error(Code::out_of_memory, text(call, ": rank ", root.rank(), ": no memory left"));
  } catch (const std::exception& error) {
    told = Error(Code::internal, text(call, ": rank ", root.rank(), ": ", error.what()));
  } catch (...) {  // out of a caller's callback: the peers must hear of it all the same
    told = Error(Code::internal, text(call, ": rank ", root.rank(), ": an unknown exception"));
  }
  told.gang = root.name();
  told.op = call;
  told.rank = root.rank();
  return told;
}

}  // namespace

void abort_and_throw(Gangs& gangs, const char* call) {
  Error told(Code::out_of_memory, "no memory");  // short enough to need none
  try {
    told = caught(*gangs.root(), call);
  } catch (const std::bad_alloc&) {
  }
  gangs.abort(told);
  throw told;
}

}  // namespace gangway
