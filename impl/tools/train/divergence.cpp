#include "tools/train/divergence.h"

#include <algorithm>
#include <cstdio>

#include "tools/train/status.h"

namespace gangway::train {
namespace {

// The mean follows the last hundred losses or so. The first losses of a run fall too fast for a comparison.
constexpr int64_t kMeanOf = 100, kLeastLosses = 20;

const char* cause_of(gw_skip_reason reason) {
  return reason == GW_SKIP_NO_WEIGHT ? "no label of its batch counts"
                                     : "its loss or a gradient is not finite";
}

[[noreturn]] void end_run(int64_t step, const std::string& what) {
  throw Failed(Exit::diverged,
               "the run ends after step " + std::to_string(step) + ", and does not save it: " + what +
                   "; --checkpoint.step N continues from an older checkpoint, with a lower optimizer.lr, "
                   "optimizer.max_grad_norm or other data");
}

std::string steps_text(int64_t count) { return std::to_string(count) + (count == 1 ? " step" : " steps"); }

}  // namespace

Divergence::Divergence(const Settings& s)
    : most_skips_(s.integer("train.max_skips")),
      most_spikes_(s.integer("train.max_spikes")),
      spike_ratio_(s.number("train.spike_ratio")) {}

std::string Divergence::note(int64_t step, const gw_step_result& result) {
  if (result.skipped != 0) return note_skip(step, result.skip_reason);
  const int64_t skipped = skips_;
  skips_ = 0;
  note_loss(step, result.loss);
  if (skipped < 2) return "";
  return "step " + std::to_string(step) + " changes the model again, after " + steps_text(skipped) +
         " in a row that did not";
}

std::string Divergence::note_skip(int64_t step, gw_skip_reason reason) {
  if (++skips_ == most_skips_)
    end_run(step, "the last " + steps_text(skips_) + " changed nothing (train.max_skips); of this step " +
                      cause_of(reason));
  if (skips_ > 1) return "";
  return "step " + std::to_string(step) + " is skipped: " + cause_of(reason) +
         (most_skips_ == 0 ? "" : " (" + steps_text(most_skips_) + " like this in a row end the run)");
}

void Divergence::note_loss(int64_t step, double loss) {
  if (losses_ >= kLeastLosses && mean_ > 0 && loss > spike_ratio_ * mean_) {
    if (++spikes_ != most_spikes_) return;
    char numbers[120];
    std::snprintf(numbers, sizeof numbers, ": the last is %.4g, the mean before them %.4g", loss, mean_);
    end_run(step, "its last " + steps_text(spikes_) + " had losses over train.spike_ratio times the mean" +
                      numbers);
  }
  spikes_ = 0;
  losses_ = std::min(losses_ + 1, kMeanOf);
  mean_ += (loss - mean_) / static_cast<double>(losses_);
}

}  // namespace gangway::train
