// The fold of one slice of several ranks' inputs, done while they arrive. Elements of the input that comes
// last are folded from where they lie: in the ring of shared memory, or in the buffer of a socket. Those that
// come earlier than the others' are kept beside, so that reading never waits for another rank.
//
// The fold is a left fold in rank order, with the kernels of the host engine, so a result has the bits that
// the host engine gives.
//
// Thread rule: values of one thread, or under the network's mutex.
#pragma once

#include <cstddef>
#include <vector>

#include "gang/collective.h"

namespace gangway::network {

// Whether a fold of this type is rounded at its end.
bool is_narrow(DType dtype);
// The accumulator's type, in which a prefix travels: what some ranks have folded, and has not been rounded.
DType folded_type(DType dtype);

struct FoldResult {
  char* to = nullptr;  // it may be the memory of this rank's own input
  // False: a prefix, for the ranks that come later.
  bool is_final = true;
  bool accumulate = false;  // adds the result to what is there
};

class SliceFold {
 public:
  // Of `count` elements. `ranks`: those of the gang, by which a mean is divided.
  SliceFold(const Collective& c, int ranks, size_t count, const FoldResult& result);

  // The inputs, in rank order. A prefix comes first, and stands for all ranks before.
  void add_own(const char* at);
  // Returns the input's number. `beside`: memory for the elements that come early, as many as the slice has;
  // it is not touched before.
  int add_arriving(char* beside, bool is_prefix = false);
  // To call after all were added. Without an arriving input the result is made here.
  void begin();

  // The next bytes of an arriving input have come. They may end inside an element.
  void take(int input, const char* bytes, size_t count);
  // The first `bytes` bytes of this input have come, in chunks that were good.
  void confirm(int input, size_t bytes);
  // The bytes of the result that may leave, since all inputs of them are confirmed.
  size_t ready_bytes() const;

 private:
  struct Input {
    const char* at = nullptr;  // own memory, or what has come early
    char* beside = nullptr;    // null: own memory
    size_t item = 0;
    size_t came = 0, good = 0;  // elements
    char part[8] = {};          // of an element that has come in part
    size_t part_bytes = 0;
  };
  void take_elements(size_t input, const char* from, size_t count);
  void fold(size_t first, size_t count, size_t arriving, const char* from);
  void fold_block(size_t count, void* out);
  bool converts() const { return is_narrow(dtype_) && (has_prefix_ || !result_.is_final); }

  const DType dtype_, type_;  // of the inputs, of the accumulator
  const Reduce reduce_;
  const int ranks_;
  const size_t count_;
  const FoldResult result_;
  bool has_prefix_ = false;
  std::vector<Input> inputs_;
  std::vector<const void*> in_;  // of one block: where each input's elements lie
  std::vector<float> wide_;      // one block of each input, and of the result
};

}  // namespace gangway::network
