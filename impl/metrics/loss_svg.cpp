#include "metrics/loss_svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gangway {
namespace {

constexpr double kLeft = 60, kRight = 760, kTop = 40, kBottom = 360;

// Returns the step between ticks, 1, 2 or 5 times a power of ten, that gives about five ticks.
double tick_step(double range) {
  const double rough = range / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

struct PlotAxis {
  double least, most, from, to;  // values, and where they lie in the picture
  double place(double value) const { return from + (value - least) / (most - least) * (to - from); }
};

std::string format(const char* form, double a, double b = 0, double c = 0) {
  char text[256];
  std::snprintf(text, sizeof text, form, a, b, c);
  return text;
}

std::string number(double value, double step) {
  char text[32];
  const int digits = step >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string ticks(const PlotAxis& x, const PlotAxis& y) {
  std::string out;
  const double dy = tick_step(y.most - y.least);
  for (double v = std::ceil(y.least / dy) * dy; v <= y.most + dy * 1e-9; v += dy)
    out += format("<line x1=\"60\" x2=\"760\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>", y.place(v),
                  y.place(v)) +
           format("<text x=\"52\" y=\"%.1f\" text-anchor=\"end\">", y.place(v) + 4) + number(v, dy) +
           "</text>\n";
  const double dx = std::max(1.0, tick_step(x.most - x.least));
  for (double v = std::ceil(x.least / dx) * dx; v <= x.most + dx * 1e-9; v += dx)
    out += format("<text x=\"%.1f\" y=\"378\" text-anchor=\"middle\">", x.place(v)) + number(v, dx) +
           "</text>\n";
  return out;
}

// A curve of at most one point for each column of the picture.
std::string curve(const std::vector<LogFile::Point>& points, double LogFile::Point::*value, const PlotAxis& x,
                  const PlotAxis& y, const char* colour) {
  std::string places;
  double sum = 0, step = 0;
  int count = 0;
  long column = -1;
  const auto end_column = [&] {
    if (count > 0) places += format("%.1f,%.1f ", x.place(step / count), y.place(sum / count));
    sum = step = 0;
    count = 0;
  };
  for (const LogFile::Point& point : points) {
    if (!std::isfinite(point.*value)) continue;
    const long here = std::lround(x.place(static_cast<double>(point.step)));
    if (here != column) end_column();
    column = here;
    sum += point.*value;
    step += static_cast<double>(point.step);
    ++count;
  }
  end_column();
  return std::string("<polyline fill=\"none\" stroke=\"") + colour + "\" stroke-width=\"1.5\" points=\"" +
         places + "\"/>\n";
}

}  // namespace

std::string draw_losses(const std::vector<LogFile::Point>& points) {
  double least = 0, most = 0;
  bool any = false, validated = false;
  for (const LogFile::Point& point : points)
    for (const double value : {point.loss, point.validation_loss}) {
      if (!std::isfinite(value)) continue;
      least = any ? std::min(least, value) : value;
      most = any ? std::max(most, value) : value;
      any = true;
      validated = validated || std::isfinite(point.validation_loss);
    }
  const double room = std::max((most - least) * 0.05, 1e-3);
  const double last = points.empty() ? 1 : std::max<double>(1, static_cast<double>(points.back().step));
  const PlotAxis x{0, last, kLeft, kRight}, y{least - room, most + room, kBottom, kTop};
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"400\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"800\" height=\"400\" fill=\"white\"/>\n";
  if (any) {
    out += ticks(x, y) + curve(points, &LogFile::Point::loss, x, y, "#3567a8");
    if (validated) out += curve(points, &LogFile::Point::validation_loss, x, y, "#c4472b");
  }
  out +=
      "<text x=\"60\" y=\"22\">loss by step</text>\n<text x=\"640\" y=\"22\" "
      "fill=\"#3567a8\">training</text>\n";
  if (validated) out += "<text x=\"700\" y=\"22\" fill=\"#c4472b\">validation</text>\n";
  return out + "</svg>\n";
}

}  // namespace gangway
