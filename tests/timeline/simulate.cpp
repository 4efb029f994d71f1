#include "timeline/simulate.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"

namespace gangway::timeline {
namespace {

using gpu_emulation::Entry;
using gpu_emulation::Work;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kInstant = 1e-12;  // times within it are one

// Bytes that a rank sends, and as many that it gets: of the best known algorithms (nccl-tests, "Performance").
double wire_bytes(const Entry& e) {
  const double n = e.ranks, share = (n - 1) / n;
  return e.name == "all_reduce"                                 ? 2 * share * e.bytes
         : e.name == "all_gather" || e.name == "reduce_scatter" ? share * e.bytes
                                                                : e.bytes;
}

struct Collective {
  int missing = 0;
  double left = 0;  // bytes
  double met = 0;
  std::vector<std::pair<size_t, size_t>> parts;  // rank, entry
  bool moves() const { return missing == 0; }
};

struct Stream {
  std::deque<size_t> queue;  // entries, issued or to be
  double free = 0;           // the end of what has run
  bool runs = false;         // its first is under way
};

struct Rank {
  const std::vector<Entry>* log = nullptr;
  size_t next = 0;  // entry that the host comes to
  double host = 0;  // when
  double busy = 0;  // until then a kernel runs
  std::map<uint64_t, Stream> streams;
  std::map<uint64_t, double> events;  // when each record was reached
  std::set<uint64_t> recorded;        // in this log
  int moving = 0;                     // collectives in flight
};

class Simulation {
 public:
  Simulation(const std::vector<std::vector<Entry>>& logs, const Rates& rates) : rates_(rates) {
    ranks_.resize(logs.size());
    times_.ranks.resize(logs.size());
    for (size_t r = 0; r < logs.size(); ++r) {
      ranks_[r].log = &logs[r];
      times_.ranks[r].spans.resize(logs[r].size());
      for (const Entry& e : logs[r])
        if (e.work == Work::record) ranks_[r].recorded.insert(e.event);
    }
  }

  StepTimes run() {
    for (;;) {
      while (step()) {
      }
      const double next = next_time();
      if (next == kNever) break;
      advance(next);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next < ranks_[r].log->size()) stuck(r, ranks_[r].next);
      for (const auto& [number, stream] : ranks_[r].streams)
        if (!stream.queue.empty()) stuck(r, stream.queue.front());
    }
    return std::move(times_);
  }

 private:
  [[noreturn]] void stuck(size_t r, size_t entry) const {
    fail(Code::invalid_state, "simulate: rank ", r, " waits for ever at entry ", entry, " (",
         (*ranks_[r].log)[entry].name, ")");
  }
  Span& span(size_t r, size_t i) { return times_.ranks[r].spans[i]; }

  // Whatever can happen now.
  bool step() {
    bool any = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      while (host_goes_on(r)) any = true;
      for (auto& [number, stream] : ranks_[r].streams)
        while (stream_goes_on(r, stream)) any = true;
    }
    return any;
  }

  double launch_time(Work work) const {
    switch (work) {
      case Work::collective: return rates_.collective_launch_s;
      case Work::record:
      case Work::wait: return rates_.event_s;
      case Work::host_wait: return 0;
      default: return rates_.launch_s;
    }
  }

  bool host_goes_on(size_t r) {
    Rank& rank = ranks_[r];
    if (rank.next == rank.log->size() || rank.host > now_ + kInstant) return false;
    const Entry& e = (*rank.log)[rank.next];
    Span& mine = span(r, rank.next);
    if (e.work != Work::host_wait) {
      mine.issued = rank.host += launch_time(e.work);
      rank.streams[e.stream].queue.push_back(rank.next++);
      return true;
    }
    if (mine.issued == 0) mine.issued = mine.start = rank.host;
    double reached = 0;
    if (e.event != 0) {
      if (!passed(rank, e.event, reached)) return false;
    } else if (const Stream& stream = rank.streams[e.stream]; !stream.queue.empty()) {
      return false;
    } else {
      reached = stream.free;
    }
    if (reached > now_ + kInstant) return false;
    rank.host = std::max(rank.host, now_) + rates_.host_wait_s;
    mine.end = rank.host;
    ++rank.next;
    return true;
  }

  bool passed(const Rank& rank, uint64_t event, double& when) const {
    if (!rank.recorded.contains(event)) return true;  // before the log began
    const auto found = rank.events.find(event);
    if (found == rank.events.end()) return false;
    when = found->second;
    return true;
  }

  // Starts or ends the stream's first entry.
  bool stream_goes_on(size_t r, Stream& stream) {
    if (stream.queue.empty()) return false;
    Rank& rank = ranks_[r];
    const size_t i = stream.queue.front();
    const Entry& e = (*rank.log)[i];
    Span& mine = span(r, i);
    const double ready = std::max(mine.issued, stream.free);
    if (stream.runs) {
      if (e.work == Work::collective || mine.end > now_ + kInstant) return false;
      return end(stream, mine.end);
    }
    if (ready > now_ + kInstant) return false;
    if (e.work == Work::record) {
      rank.events[e.event] = mine.start = ready;
      return end(stream, mine.end = ready);
    }
    if (e.work == Work::wait) {
      double when = 0;
      if (!passed(rank, e.event, when)) return false;
      mine.start = ready;
      return end(stream, mine.end = std::max(ready, when));
    }
    if (e.work == Work::collective) return come(r, i, stream);
    if (computes(e) && rank.busy > now_ + kInstant) return false;
    mine.start = now_;
    mine.end = now_ + seconds_of(e, rates_);
    if (computes(e)) rank.busy = mine.end;
    return stream.runs = true;
  }

  static bool end(Stream& stream, double when) {
    stream.free = when;
    stream.runs = false;
    stream.queue.pop_front();
    return true;
  }

  bool come(size_t r, size_t i, Stream& stream) {
    const Entry& e = (*ranks_[r].log)[i];
    Collective& c = collectives_[{e.communicator, e.launch}];
    if (c.parts.empty()) c.missing = e.ranks;
    c.parts.emplace_back(r, i);
    span(r, i).start = now_;
    stream.runs = true;
    if (--c.missing > 0) return true;
    // The latency, as bytes that the link would move meanwhile.
    c.left = wire_bytes(e) + rates_.collective_s * rates_.link;
    c.met = now_;
    for (const auto& [rank, entry] : c.parts) ++ranks_[rank].moving;
    return true;
  }

  // Bytes a second: the link of the busiest rank decides.
  double rate(const Collective& c) const {
    int most = 1;
    for (const auto& [rank, entry] : c.parts) most = std::max(most, ranks_[rank].moving);
    return rates_.link / most;
  }

  double next_time() {
    double next = kNever;
    const auto at = [&](double when) {
      if (when > now_ + kInstant) next = std::min(next, when);
    };
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      if (rank.next < rank.log->size()) at(rank.host);
      at(rank.busy);
      for (const auto& [number, stream] : rank.streams) {
        if (stream.queue.empty()) {
          at(stream.free);  // a host may wait for it
          continue;
        }
        const Span& first = span(r, stream.queue.front());
        at(stream.runs ? first.end : std::max(first.issued, stream.free));
      }
    }
    for (const auto& [key, c] : collectives_)
      if (c.moves()) next = std::min(next, now_ + c.left / rate(c));
    return next;
  }

  void advance(double to) {
    const double length = to - now_;
    std::vector<std::pair<uint64_t, uint64_t>> ended;
    for (auto& [key, c] : collectives_) {
      if (!c.moves()) continue;
      c.left -= length * rate(c);
      if (c.left < 1e-3) ended.push_back(key);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) count(r, length);
    now_ = to;
    for (const auto& key : ended) {
      const Collective c = collectives_[key];
      collectives_.erase(key);
      for (const auto& [r, i] : c.parts) {
        --ranks_[r].moving;
        span(r, i).met = c.met;
        span(r, i).end = now_;
        end(ranks_[r].streams[(*ranks_[r].log)[i].stream], now_);
      }
    }
    times_.length = now_;
  }

  // What a rank did until the next time.
  void count(size_t r, double length) {
    Rank& rank = ranks_[r];
    if (rank.busy > now_ + kInstant) {
      times_.ranks[r].compute += length;
      return;
    }
    for (const auto& [number, stream] : rank.streams)
      if (stream.runs && (*rank.log)[stream.queue.front()].work == Work::collective) {
        times_.ranks[r].exposed += length;
        return;
      }
    times_.ranks[r].idle += length;
  }

  const Rates& rates_;
  double now_ = 0;
  std::vector<Rank> ranks_;
  std::map<std::pair<uint64_t, uint64_t>, Collective> collectives_;  // by communicator and launch
  StepTimes times_;
};

}  // namespace

bool computes(const Entry& e) { return e.work == Work::kernel || e.work == Work::product; }

double seconds_of(const Entry& e, const Rates& rates) {
  if (const auto own = rates.kernels.find(e.name); e.work == Work::kernel && own != rates.kernels.end()) {
    const auto [flops, bytes] = own->second;
    return std::max({rates.kernel_s, flops > 0 ? e.flops / flops : 0, bytes > 0 ? e.bytes / bytes : 0});
  }
  const double share = e.work == Work::product ? rates.product_share : rates.attention_share;
  return std::max({rates.kernel_s, e.flops / (rates.peak * share), e.bytes / rates.memory});
}

int host_waits(const std::vector<Entry>& rank) {
  return static_cast<int>(
      std::count_if(rank.begin(), rank.end(), [](const Entry& e) { return e.work == Work::host_wait; }));
}

StepTimes simulate(const std::vector<std::vector<Entry>>& ranks, const Rates& rates) {
  return Simulation(ranks, rates).run();
}

}  // namespace gangway::timeline
