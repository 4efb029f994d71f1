// What the ranks of a gang tell each other beside their data: refusals, arguments, sizes, names, sums. The
// values lie in the host's memory, whatever the gang's device is, and move over the control engine
// (Engine::control) on any channel.
//
// Thread rule: a Gang's (gang/gang.h); the gang must outlive the object.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/refusal.h"
#include "gang/gang.h"

namespace gangway {

class Agreement {
 public:
  // One collective over values of the host.
  void run_now(Channel channel, const Collective& record);
  WorkPtr run(Channel channel, const Collective& record);

  // Every rank's bytes, in rank order. Their sizes may differ.
  std::vector<std::string> all_gather_bytes(Channel channel, const std::string& mine);
  // The `value` of `root` on every rank. Its size travels with it.
  std::string broadcast_bytes(Channel channel, const std::string& value, int root);
  double all_sum(Channel channel, double value);

  // Ends a check phase. Every rank passes its own refusal or nothing. If any rank refuses, all throw the
  // refusal of the lowest such rank, with its text. `arguments`, as text, must be equal on all ranks:
  // otherwise, and if no rank refused, all throw MISMATCH with both texts. The gang works on in either case.
  // Control channel.
  void agree(const std::optional<Error>& refusal, const std::string& arguments = "");
  // Runs `check`, which is local and throws an Error to refuse. Then the ranks agree.
  template <typename Check>
  void agree_on(Check&& check, const std::string& arguments = "") {
    agree(refusal_of(check), arguments);
  }

 private:
  friend class Gang;
  explicit Agreement(Gang& gang) : gang_(gang) {}
  void vote(const std::optional<Error>& refusal, const std::string& arguments);
  [[noreturn]] void throw_when_all_know(Error error);

  Gang& gang_;
};

}  // namespace gangway
