// Forwards by hand that await their backward, and what becomes of gradients when one is given up.
//
// Nothing takes a part out of a sum again. Where a forward that has added to gradients (a Llama's loss does)
// is given up, they are emptied if nobody else has added to them; else they are spoilt, and no optimizer
// steps with them before they are emptied.
//
// A frame gives its forward up when it is reset or released. Collectors release at any moment, on any thread,
// in the middle of other calls, and on every rank at another time. So giving up is a mark, which the owner's
// next call finds. What it does then is local; whatever ranks do together depends on the order of calls
// alone. Hence units that such a forward kept unsharded stay so until a backward ends or an update begins,
// whose check phase is agreed, and a step is refused, on all ranks, while any of them holds a forward that is
// not given up yet.
//
// Thread rule: one thread at a time; Forward::give_up from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace gangway {

class Forwards {
 public:
  class Forward {
   public:
    void give_up() noexcept { given_up_.store(true, std::memory_order_release); }

   private:
    friend class Forwards;
    bool given_up() const noexcept { return given_up_.load(std::memory_order_acquire); }
    std::atomic<bool> given_up_{false};
    bool added_ = false;
    uint64_t emptied_ = 0;  // Forwards::emptied_ when it added
  };

  std::shared_ptr<Forward> begin();
  // It adds to gradients from now on; `sums`: something is in them.
  void add(Forward& forward, bool sums);
  // It has added, and gradients were not emptied since.
  bool counts(const Forward& forward) const { return forward.added_ && forward.emptied_ == emptied_; }
  void end(const Forward& forward);  // its backward ended

  // Lets go of those that were given up. True: gradients hold nothing but their parts.
  bool settle();
  void gradients_emptied();
  void resharded() { left_unsharded_ = false; }
  // Nobody wants the units any more that forwards have left unsharded. After settle.
  bool left_unsharded() const { return left_unsharded_ && open_.empty(); }
  // INVALID_STATE: gradients hold parts of forwards without their backward. After settle.
  void check_sums(const char* call) const;

 private:
  bool any_counts() const;

  std::vector<std::shared_ptr<Forward>> open_;
  uint64_t emptied_ = 0;
  bool summed_ = false;  // gradients hold whole parts
  bool spoilt_ = false;  // and those of forwards that were given up
  bool left_unsharded_ = false;
};

}  // namespace gangway
