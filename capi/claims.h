// The objects of which one thread at a time may make calls. An entry that reads such a handle claims its
// object for the calling thread, until the entry that claimed it first returns. Entries nest when a
// callback calls the library.
#pragma once

#include <memory>
#include <vector>

#include "base/error.h"
#include "base/thread_use.h"

namespace gangway::capi {

using Use = std::shared_ptr<ThreadUse>;
inline Use new_use() { return std::make_shared<ThreadUse>(); }

// What an entry has claimed.
class EntryClaims {
 public:
  EntryClaims() noexcept : all_(claims()), before_(all_.size()) {}
  ~EntryClaims() {
    for (; all_.size() > before_; all_.pop_back()) all_.back()->leave();
  }
  EntryClaims(const EntryClaims&) = delete;
  EntryClaims& operator=(const EntryClaims&) = delete;

  // BUSY: another thread is in a call on the object, which `name` names.
  static void add(const Use& use, const char* name) {
    std::vector<Use>& all = claims();
    all.reserve(all.size() + 1);
    switch (use->claim()) {
      case ThreadUse::Claim::taken: all.push_back(use); break;
      case ThreadUse::Claim::had_it: break;
      case ThreadUse::Claim::refused:
        fail(Code::busy, name,
             " is used by another thread at this moment; take turns, for example by a lock");
    }
  }

 private:
  static std::vector<Use>& claims() noexcept {
    thread_local std::vector<Use> of_this_thread;
    return of_this_thread;
  }
  std::vector<Use>& all_;  // of this thread
  const size_t before_;
};

}  // namespace gangway::capi
