#include "tools/timeline_svg.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace gangway {
namespace {

// In pixels.
constexpr double kWidth = 1400, kLeft = 90, kTop = 44, kLane = 34, kGap = 6, kLetter = 6.2;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// Returns the distance of the marks on the axis: 1, 2 or 5 times a power of ten, with at most 20 marks.
double tick_of(double length) {
  double tick = std::pow(10, std::floor(std::log10(length / 20)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (length / (tick * factor) <= 20) return tick * factor;
  return tick;
}

}  // namespace

std::string draw_svg(const Timeline& t) {
  double length = 0;
  for (const TimelineBar& bar : t.bars) length = std::max(length, bar.end);
  const double scale = length > 0 ? (kWidth - kLeft - 20) / length : 0;
  const double bottom = kTop + static_cast<double>(t.lanes.size()) * (kLane + kGap);
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kWidth << "\" height=\"" << bottom + 64
      << "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
         "fill=\"#ffffff\"/>\n"
      << "<text x=\"10\" y=\"24\" font-size=\"15\">" << escaped(t.title) << "</text>\n";
  for (size_t lane = 0; lane < t.lanes.size(); ++lane) {
    const double y = kTop + static_cast<double>(lane) * (kLane + kGap);
    out << "<text x=\"10\" y=\"" << y + kLane / 2 + 4 << "\">" << escaped(t.lanes[lane])
        << "</text>\n<rect x=\"" << kLeft << "\" y=\"" << y << "\" width=\"" << length * scale
        << "\" height=\"" << kLane << "\" fill=\"#eeeeee\"/>\n";
  }
  for (const TimelineBar& bar : t.bars) {
    const double x = kLeft + bar.start * scale, width = (bar.end - bar.start) * scale;
    const double height = kLane / bar.parts;
    const double y = kTop + static_cast<double>(bar.lane) * (kLane + kGap) + bar.part * height;
    out << "<g><title>" << escaped(bar.tip) << "</title><rect x=\"" << x << "\" y=\"" << y << "\" width=\""
        << width << "\" height=\"" << height << "\" fill=\"" << bar.colour
        << "\" stroke=\"#ffffff\" stroke-width=\"0.5\"/>";
    if (static_cast<double>(bar.label.size()) * kLetter + 2 <= width)
      out << "<text x=\"" << x + width / 2 << "\" y=\"" << y + height / 2 + 4 << "\" text-anchor=\"middle\">"
          << escaped(bar.label) << "</text>";
    out << "</g>\n";
  }
  if (length > 0) {
    const double tick = tick_of(length);
    for (int i = 0; i * tick <= length * (1 + 1e-9); ++i)
      out << "<text x=\"" << kLeft + i * tick * scale << "\" y=\"" << bottom + 12
          << "\" text-anchor=\"middle\" fill=\"#666666\">" << i * tick << "</text>\n";
  }
  double x = kLeft;
  for (const TimelineKey& key : t.keys) {
    out << "<rect x=\"" << x << "\" y=\"" << bottom + 30 << "\" width=\"12\" height=\"12\" fill=\""
        << key.colour << "\"/><text x=\"" << x + 17 << "\" y=\"" << bottom + 40 << "\">" << escaped(key.text)
        << "</text>\n";
    x += 40 + static_cast<double>(key.text.size()) * kLetter;
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace gangway
