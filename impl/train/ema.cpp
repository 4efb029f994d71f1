#include "parallel/collective_call.h"
#include "train/step.h"

namespace gangway {

void swap_ema(Model& model, Optimizer& optimizer, Stream& stream) {
  const CollectiveCall call(model.gangs(), "swap_ema");
  std::string arguments;
  call.check(
      [&] {
        CallSignature signature("swap_ema");
        optimizer.add_to_signature(signature);
        arguments = signature.text();
        if (!optimizer.has_ema())
          fail(Code::invalid_state, optimizer.kind(),
               ": ema_decay is 0, so there are no averages; give the optimizer one, such as 0.999");
        if (optimizer.steps() == 0)
          fail(Code::invalid_state, optimizer.kind(), ": there are no averages before the first step");
        model.run().check_update();
      },
      arguments);
  call.run([&] {
    model.run().begin_update(stream);
    optimizer.swap_ema(stream);
    model.fsdp().end_update(/*cast=*/true, /*empty=*/false, stream);
  });
}

}  // namespace gangway
