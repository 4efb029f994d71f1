// What an engine does not take as it is, made of what it takes: counts per rank, MEAN, accumulation, reductions of the
// 16-bit floats, launches of several records. The only place where this is done.
//
// | record                                        | becomes                                                        |
// |-----------------------------------------------|----------------------------------------------------------------|
// | counts of all_gather, reduce_scatter, gather, | the same with one count, the largest, over padded temporaries   |
// | scatter                                       |                                                                |
// | counts of all_to_all                          | sends and receives                                             |
// | MEAN                                          | SUM, then a division                                           |
// | accumulate                                    | the same into a temporary, then an addition                    |
// | reduction of bf16, f16                        | the same in f32, rounded once                                  |
// | several records                               | one launch for each                                            |
//
// Thread rule: an Engine's (gang/engine.h).
#pragma once

#include <memory>

#include "gang/engine.h"
#include "gang/rank.h"

namespace gangway {

// An engine that takes every record, over one that need not: itself if there is nothing to lower. NOT_SUPPORTED if
// arithmetic would have to be done in memory that the host does not reach.
std::shared_ptr<Engine> lowered(std::shared_ptr<Engine> engine, std::shared_ptr<Rank> owner);

}  // namespace gangway
