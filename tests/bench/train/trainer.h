// A side of the benchmark that trains: ours or PyTorch's, on one rank or several, and what is measured of its steps.
//
// Thread rule: one thread.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/side.h"
#include "common/stats.h"
#include "train/model.h"

namespace gangway::bench {

constexpr double kPatience = 180;                     // seconds that a command may take
constexpr double kTokens = S32_BATCH * S32_SEQUENCE;  // of a rank's step

// How the ranks of a side share the model: words like "tp=2" for train_rank.c and torch_parallel.py alike. None: fully sharded.
using MeshWords = std::vector<std::string>;

struct Trainer {
  std::string name;
  int ranks = 1;
  bool connected = true;       // false: copies that do not know of each other
  double tokens = kTokens;     // of a rank's step
  std::unique_ptr<Side> side;  // null: `absent` says why, or it has ended
  std::string absent;          // why it did not start
  std::string version;
  Samples rate;     // tokens/s of all ranks
  Samples seconds;  // a step, slowest rank
  Samples cpu;      // processor time of a step, sum over ranks
  Samples wait;     // share of the step, rank that waited most
  Samples idle;     // the same, mean of the ranks
  double loss = NAN;
  double start_bytes = NAN, peak_bytes = NAN, counted_bytes = NAN;

  bool is_torch() const { return name.rfind("PyTorch", 0) == 0; }
  bool runs() const { return side != nullptr && side->alive(); }
  double taken_bytes() const { return peak_bytes - start_bytes; }
  // Memory at the start, a first step, then one whose memory is watched; neither is timed.
  void prepare();
  void step(int count = 1, double patience = kPatience);  // one round, of so many steps
  void stop();                                            // ends the processes; what was measured stays
  std::string why_lost() const;

  std::string lost;  // of a side that was stopped
};

// Sides whose name contains one of these words; no words: all.
bool asked_for(const std::string& name, const std::vector<std::string>& only);

struct OursOptions {
  std::string dtype = "f32";
  bool connected = true;
  MeshWords mesh;
};
Trainer start_ours(const std::string& name, int ranks, const OursOptions& options);
// `folder`: where its ranks meet; `program`: in peers/.
Trainer start_torch(const std::string& name, int ranks, const std::string& folder, const MeshWords& mesh = {},
                    const char* program = "torch_train.py");
Trainer absent(const std::string& name, int ranks, const std::string& why);
constexpr const char* kNotAskedFor = "not asked for";
void show_progress(const std::string& what, int round, int rounds);  // on standard error

// A goal and what was measured. A missing value is NaN.
struct Goal {
  std::string what;
  double value;
  std::string value_text, goal;
  bool met;
};
Goal at_least(const std::string& what, double value, double goal, bool is_share);
Goal at_most(const std::string& what, double value, double goal, bool is_share);
void print(const std::vector<Goal>& goals);

void print(const std::vector<const Trainer*>& trainers);
nlohmann::json json_of(const Trainer& trainer);

}  // namespace gangway::bench
