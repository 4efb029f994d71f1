// Exchanges small values between the ranks of a gang: refusals, arguments, sizes, names, sums. The values are
// in host memory, whatever the gang's device is, and move over the control engine (Engine::control) on any
// channel.
//
// Thread rule: that of a Gang (gang/gang.h); the gang must outlive the object.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/refusal.h"
#include "gang/gang.h"

namespace gangway {

class Agreement {
 public:
  // Runs one collective on values in host memory, and waits for it.
  void run_now(Channel channel, const Collective& record);
  WorkPtr run(Channel channel, const Collective& record);

  // Returns the bytes of every rank, in rank order. Their sizes may differ.
  std::vector<std::string> all_gather_bytes(Channel channel, const std::string& mine);
  // Returns the `value` of `root` on every rank. The other ranks need not know its size.
  std::string broadcast_bytes(Channel channel, const std::string& value, int root);
  double all_sum(Channel channel, double value);

  // Ends a check phase. Every rank passes its own refusal or nothing. If any rank refuses, all throw the
  // refusal of the lowest such rank, with its text. `arguments`, as text, must be equal on all ranks:
  // otherwise, and if no rank refused, all throw MISMATCH with both texts. The gang stays usable in either
  // case. It uses the control channel.
  void agree(const std::optional<Error>& refusal, const std::string& arguments = "");
  // Runs `check`, which is local and throws an Error to refuse. Then the ranks agree.
  template <typename Check>
  void agree_on(Check&& check, const std::string& arguments = "") {
    agree(error_thrown_by(check), arguments);
  }

 private:
  friend class Gang;
  explicit Agreement(Gang& gang) : gang_(gang) {}
  void vote(const std::optional<Error>& refusal, const std::string& arguments);
  [[noreturn]] void throw_when_all_know(Error error);

  Gang& gang_;
};

}  // namespace gangway
