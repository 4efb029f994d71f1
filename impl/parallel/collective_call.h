// One call that all ranks of a model make together. It has two phases:
//
//   CollectiveCall call(gangs, "clip_grad_norm");
//   call.check([&] { ... }, arguments);   // local; throws to refuse
//   call.run([&] { ... });                // the collective work
//
// check   Runs before any data moves. If one rank refuses, all ranks throw the refusal of the lowest rank; if
//         the arguments differ, all throw MISMATCH. The gangs stay usable. It costs one small all-gather on
//         the root gang's control channel. A call may have several check phases.
// run     Peers depend on this rank's part. Any failure here, out-of-memory and the caller's interrupt
//         included, breaks every gang of the model, and the peers throw this rank's error. The error names a
//         lost rank by its number in the root gang, whichever gang detected the loss. A rank without peers
//         keeps its gangs usable.
//
// A thread that ends inside a caller's callback (pthread_exit unwinds through either phase) also breaks the
// gangs.
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
  // Errors show `name`. `name` and the gangs must outlive this object.
  CollectiveCall(Gangs& gangs, const char* name) : root_(*gangs.root()), mesh_(&gangs), name_(name) {}
  // For gangs that belong to no mesh: the first one is the root, and a failure breaks all of them.
  CollectiveCall(std::span<const GangPtr> gangs, const char* name)
      : root_(*gangs[0]), gangs_(gangs), name_(name) {}

  // `arguments` is a text of everything that must be equal on all ranks, because ranks that differ in it
  // would run different collectives or compute different numbers; an empty text stands for the name. It is
  // read after `check`, which may write it. If `check` returns a value (at most 32 trivially copyable bytes),
  // this returns the values of all ranks in rank order.
  template <typename Check>
  auto check(Check&& check, const std::string& arguments = {}) const {
    using Value = std::invoke_result_t<Check&>;
    if constexpr (std::is_void_v<Value>) {
      agree(unless_thread_ends([&] { return error_thrown_by(check); }), arguments, {});
    } else {
      static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= sizeof(Payload));
      Payload mine{};
      const std::optional<Error> refusal = unless_thread_ends([&] {
        return error_thrown_by([&] {
          const Value value = check();
          std::memcpy(mine.data(), &value, sizeof value);
        });
      });
      const std::vector<Payload> all = agree(refusal, arguments, mine);
      return run([&] { return values_of<Value>(all); });
    }
  }

  // For a caller that reads its arguments before it calls a function that has a check phase. A refusal takes
  // part in that phase, which the peers run, and is then thrown. Without a refusal nothing is sent.
  template <typename Read>
  void read(Read&& read) const {
    if (const std::optional<Error> refusal = error_thrown_by(read)) refuse(*refusal);
  }

  template <typename Body>
  decltype(auto) run(Body&& body) const {
    if (alone()) return body();
    try {
      // Deferred device work belongs to this call, so it is submitted here, where its failure breaks the
      // gangs.
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
  [[noreturn]] void break_gangs() const;  // call only inside a catch block
  Error told_of_root(Error error) const;
  void abort(const Error& error) const noexcept;
  template <typename Body>
  decltype(auto) unless_thread_ends(Body&& body) const {
    try {
      return body();
    } catch (const abi::__forced_unwind&) {
      // The C++ runtime ends the process unless this block rethrows.
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
