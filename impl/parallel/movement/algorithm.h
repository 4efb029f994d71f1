// The part of a movement that depends on its kind: which ranks exchange tensors, and by which collectives.
// along.cpp, roots.cpp and repartition.cpp each have one Algorithm. movement.cpp does what all have in
// common: the check phases of a call and the run of its collectives.
//
// Thread rule: that of a module.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/movement/movement.h"
#include "parallel/redistribute.h"

namespace gangway::movement {

// The arguments of make_movement.
struct Request {
  Movement kind;
  Partition source;
  std::optional<Partition> target;
  MovementOptions options;

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Code::invalid_argument, name(kind), ": ", parts...);
  }
};

// Ranks that exchange tensors with each other. A rank may be in several groups or in none.
struct Group {
  Redistribution run;
  GangPtr gang;
};

using PlanPtr = std::shared_ptr<const RedistributionPlan>;

// A group's part of one forward or backward. A rank that has no input, or wants no output, still takes part.
struct GroupCall {
  size_t group;
  PlanPtr plan;
  bool has_input, wants_output;
};

// What one forward and its backward run.
struct CallPlan {
  DType dtype;
  Shape before, after;  // of this rank's input and output
  std::vector<GroupCall> forward, backward;
};

class Algorithm {
 public:
  explicit Algorithm(Request request) : request_(std::move(request)) {}
  virtual ~Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;

  // Throws the refusal of a request that the kind does not take. Local.
  virtual void check() = 0;
  // Creates the groups of this rank, after all ranks have passed check(). Collective over the base gang.
  virtual void make_groups() = 0;
  // Plans a call of a rank that is in a group. inputs[g] are the inputs of the members of group g, in the
  // order of their ranks. Throws the refusal of inputs that do not fit together. Local.
  virtual CallPlan plan(const Tensor& x, std::span<const Specs> inputs) const = 0;

  const Request& request() const { return request_; }
  const std::vector<Group>& groups() const { return groups_; }
  // Returns the shape of the output of a rank that gets nothing for the input x.
  Shape shape_of_nothing(const Tensor& x) const;

 protected:
  void add_group(const GangPtr& gang);

  const Request request_;
  std::vector<Group> groups_;
};

// The maker of each algorithm, defined in the file of its name.
std::unique_ptr<Algorithm> make_along(Request request);
std::unique_ptr<Algorithm> make_roots(Request request);
std::unique_ptr<Algorithm> make_repartition(Request request);

// What several algorithms use:

constexpr const char* kAxis = "group";  // the name of a group's only axis, in the layouts of its plans

// Throws the refusals of every kind that moves between two partitions.
void check_pair(const Request& request);
// Refuses members of a group whose inputs have different dtypes or shapes, except for dim `cut` (-1: no
// exception), and inputs that do not have `dims` dims (-1: any number is right).
void check_equal(const Request& request, const Specs& inputs, int cut, int dims);
// Returns the plan of one move in a group of `size` ranks. With one rank nothing moves.
PlanPtr plan_of(const Move& move, int size);

}  // namespace gangway::movement
