// A schedule's CSV text from a stranger, against its parser and the checker: a refusal or a schedule that prints the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "parallel/pipeline/checker.h"

using namespace gangway;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Schedule schedule = schedule_from_csv({reinterpret_cast<const char*>(data), size});
    if (schedule_from_csv(to_csv(schedule)).rows != schedule.rows) abort();
    for (const Transport transport : {Transport::asynchronous, Transport::buffered, Transport::rendezvous})
      check_schedule(schedule, transport);
  } catch (const Error& error) {
    if (error.code() != Code::invalid_argument) abort();
  }
  return 0;
}
