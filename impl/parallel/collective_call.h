// One call that all ranks of a model make together, in its two parts:
//
//   CollectiveCall call(gangs, "clip_grad_norm");
//   call.check([&] { ... }, arguments);   // local; throws to refuse
//   call.run([&] { ... });                // what ranks do together
//
// check   Nothing has moved yet. All ranks throw the first refusal (lowest rank), or MISMATCH if their arguments
//         differ; the gangs work on. One small all-gather on root's control channel. A call may have several.
// run     Peers wait for this rank's part. What fails here, want of memory and the caller's interrupt included,
//         breaks every gang of the model, and the peers throw this rank's error. A lost rank is told by its number in
//         root, whichever gang missed it. A rank that is alone has no peers to tell: its gangs work on.
//
// A thread that ends in a caller's callback (pthread_exit unwinds through either part) breaks the gangs likewise.
//
// Thread rule: one thread at a time; collective over root.
#pragma once

#include <cxxabi.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/refusal.h"
#include "mesh/gangs.h"

namespace gangway {

class CollectiveCall {
 public:
  // `name` is the call's in errors; it and the gangs outlive this.
  CollectiveCall(Gangs& gangs, const char* name) : root_(*gangs.root()), mesh_(&gangs), name_(name) {}
  // Over gangs of no mesh: the first one is root, all are broken together.
  CollectiveCall(std::span<const GangPtr> gangs, const char* name)
      : root_(*gangs[0]), gangs_(gangs), name_(name) {}

  // `arguments`: text of what must be equal on all ranks, because ranks that differ in it would run other
  // collectives or compute other numbers; empty: the name. It is read after `check`, which may write it.
  // A check that gives a value (at most 32 bytes, copyable as bytes) ends with every rank's value, in rank order.
  template <typename Check>
  auto check(Check&& check, const std::string& arguments = {}) const {
    using Value = std::invoke_result_t<Check&>;
    if constexpr (std::is_void_v<Value>) {
      agree(unless_thread_ends([&] { return refusal_of(check); }), arguments, {});
    } else {
      static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= sizeof(Payload));
      Payload mine{};
      const std::optional<Error> refusal = unless_thread_ends([&] {
        return refusal_of([&] {
          const Value value = check();
          std::memcpy(mine.data(), &value, sizeof value);
        });
      });
      const std::vector<Payload> all = agree(refusal, arguments, mine);
      return run([&] { return values_of<Value>(all); });
    }
  }

  // For a caller that reads its arguments before it calls a function with a check phase of its own. A refusal
  // joins that phase, in which the peers are or will be, and is thrown; without one nothing is sent.
  template <typename Read>
  void read(Read&& read) const {
    if (const std::optional<Error> refusal = refusal_of(read)) refuse(*refusal);
  }

  template <typename Body>
  decltype(auto) run(Body&& body) const {
    if (alone()) return body();
    try {
      // Work that the device still keeps back is the call's, and so is its failure.
      if constexpr (std::is_void_v<std::invoke_result_t<Body&>>) {
        unless_thread_ends(body);
        root_.device().submit();
      } else {
        decltype(auto) result = unless_thread_ends(body);
        root_.device().submit();
        return result;
      }
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      break_gangs();
    }
  }

  bool alone() const { return root_.size() == 1; }

 private:
  using Payload = std::array<unsigned char, 32>;
  template <typename Value>
  static std::vector<Value> values_of(const std::vector<Payload>& all) {
    std::vector<Value> values(all.size());
    for (size_t r = 0; r < all.size(); ++r) std::memcpy(&values[r], all[r].data(), sizeof(Value));
    return values;
  }
  std::vector<Payload> agree(const std::optional<Error>& refusal, const std::string& arguments,
                             const Payload& mine) const;
  [[noreturn]] void refuse(const Error& refusal) const;
  [[noreturn]] void break_gangs() const;  // inside a catch block
  Error told_of_root(Error error) const;
  void abort(const Error& error) const noexcept;
  template <typename Body>
  decltype(auto) unless_thread_ends(Body&& body) const {
    try {
      return body();
    } catch (const abi::__forced_unwind&) {  // nothing but `throw` may end this block
      thread_ends();
      throw;
    }
  }
  void thread_ends() const noexcept;

  Gang& root_;
  Gangs* mesh_ = nullptr;
  std::span<const GangPtr> gangs_;
  const char* name_;
};

}  // namespace gangway
