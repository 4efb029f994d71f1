// Draws what ranks do over time as an SVG picture: one lane for each rank, with time to the right.
//
// Thread rule: pure function.
#pragma once

#include <string>
#include <vector>

namespace gangway {

struct TimelineBar {
  size_t lane = 0;
  double start = 0, end = 0;
  std::string label;   // drawn if it fits
  std::string tip;     // shown when the pointer rests on the bar
  std::string colour;  // "#rrggbb"
  // Which part of the lane's height the bar takes. Bars that overlap in time divide the height.
  int part = 0, parts = 1;
};

struct TimelineKey {
  std::string colour, text;
};

struct Timeline {
  std::string title;
  std::vector<std::string> lanes;  // labels
  std::vector<TimelineBar> bars;
  std::vector<TimelineKey> keys;
};

std::string draw_svg(const Timeline& timeline);

}  // namespace gangway
