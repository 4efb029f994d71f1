// Every entry of the ABI as a list, each with a way to call it with null and zero for all arguments. The
// types of the arguments are left in one small function for each signature: tests that went over the entries
// in templates of their own took minutes to compile.
#pragma once

#include <gangway/gangway.h>

#include <type_traits>

struct Entry {
  const char* name;
  void (*function)();
  gw_status (*call)(void (*function)());  // GW_OK if the entry returns no status
  bool gives_status;
};

template <typename Result, typename... Arguments>
gw_status call_with_nothing(void (*function)()) {
  const auto entry = reinterpret_cast<Result (*)(Arguments...)>(function);
  if constexpr (std::is_same_v<Result, gw_status>) {
    return entry(Arguments{}...);
  } else {
    entry(Arguments{}...);
    return GW_OK;
  }
}

template <typename Result, typename... Arguments>
Entry entry_of(const char* name, Result (*function)(Arguments...)) {
  return {name, reinterpret_cast<void (*)()>(function), call_with_nothing<Result, Arguments...>,
          std::is_same_v<Result, gw_status>};
}

inline const Entry kEntries[] = {
#define ENTRY(name) entry_of(#name, name),
#include "entries.inc"
#undef ENTRY
};
