// The reference model on one rank and fully sharded over two, its products alone, PyTorch beside it.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/stats.h"
#include "train/trainer.h"

namespace gangway::bench {

// One dtype's products alone and operations in a step.
struct Operations {
  std::unique_ptr<Side> side;
  Samples linear, head;                  // seconds a step, each product alone
  Samples total;                         // seconds of the timed step
  std::map<std::string, Samples> spent;  // by operation
};

class Reference {
 public:
  // Starts the sides that `only` asks for.
  Reference(const std::vector<std::string>& only, const std::string& folder);

  void run(int rounds);
  void print() const;
  void add_to(nlohmann::json& report) const;

 private:
  void start_operations(const std::string& dtype, const std::vector<std::string>& only);
  void profile_torch();
  void step(Operations& o);
  const Trainer& of(const std::string& name) const;
  std::vector<Goal> goals() const;
  double products_alone(const std::string& dtype) const;
  double outside_in_step(const std::string& dtype) const;
  void print_operations(const std::string& dtype) const;

  bool all_are_asked_for_ = true;
  std::deque<Trainer> trainers_;
  std::map<std::string, Operations> operations_;
  Samples torch_outside_;
};

}  // namespace gangway::bench
