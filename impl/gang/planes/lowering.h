// Lowering: turns records that an engine cannot run into records that it can. It covers counts per rank,
// MEAN, accumulation, reductions of 16-bit floats, and launches of several records. No other code does this.
//
// | record                                        | becomes                                           |
// |-----------------------------------------------|---------------------------------------------------|
// | counts of all_gather, reduce_scatter, gather, | the same with one count, the largest, over padded |
// | scatter                                       | temporaries                                       |
// | counts of all_to_all                          | sends and receives                                |
// | MEAN                                          | SUM, then a division                              |
// | accumulate                                    | the same into a temporary, then an addition       |
// | reduction of bf16, f16                        | the same in f32, rounded once                     |
// | several records                               | one launch for each                               |
//
// Thread rule: that of an Engine (gang/engine.h).
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/rank.h"

namespace gangway {

// Makes an engine that can run every record on top of `engine`; returns `engine` itself if there is nothing
// to lower. A record is NOT_SUPPORTED if it needs arithmetic in memory that the host cannot access.
std::shared_ptr<Engine> lowered(std::shared_ptr<Engine> engine, std::shared_ptr<Rank> owner);

}  // namespace gangway
