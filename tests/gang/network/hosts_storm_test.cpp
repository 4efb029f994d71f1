// Ranks on two hosts, which are network namespaces of this machine, meet with accidents at random times in
// calls of every kind: every other rank ends soon and names the right rank. GANGWAY_TEST_KILLS says how many
// accidents; from a hundred on, a table of the times is printed while it goes.
//
//   kill     a rank gets SIGKILL
//   cut      the network of a host goes down
//   stop     a rank is stopped for 3 s, in gangs whose ranks must give a sign of life each second
//   pause    the same in gangs without that rule: all go on
//   abort    a rank aborts the gang
#include "gang/network/hosts.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/error.h"
#include "support/placed.h"

namespace gangway::test {
namespace {

enum Kind { killed, cut, stopped, paused, aborted, kKinds };
constexpr std::array<const char*, kKinds> kNames = {"kill", "cut", "stop", "pause", "abort"};
// What ten rounds have. Those of a stopped rank take three seconds each.
constexpr std::array<Kind, 10> kFewKinds = {killed, aborted, cut,    killed,  aborted,
                                            killed, cut,     killed, aborted, aborted};
constexpr std::array<Kind, 10> kManyKinds = {killed, aborted, cut,    killed, stopped,
                                             killed, cut,     paused, killed, aborted};
constexpr int kStop_us = 3'000'000;
constexpr int64_t kHung_ms = 15'000;  // before the deadline of the gangs' calls, which is 20 s

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// Times in milliseconds from the accident to the errors of the other ranks.
struct Row {
  std::vector<double> took;
  int rounds = 0, wrong = 0, hung = 0;
};

struct Round {
  Kind kind;
  bool over_fabric;
  std::vector<int> hosts;
  int victim, after_us;
};

class HostsStorm : public OnHosts {
 protected:
  std::string program() const override { return placed("@build@/tests/gang/network/network_rank"); }

  Round draw(int number, bool many) {
    static const std::vector<std::vector<int>> kGangs = {{1, 2}, {1, 1, 2, 2}, {1, 2, 2}, {1, 2, 1, 2}};
    Round round;
    const auto tenth = static_cast<size_t>(number % 10);
    round.kind = many ? kManyKinds[tenth] : kFewKinds[tenth];
    if (!many && number == 10) round.kind = stopped;
    if (!many && number == 11) round.kind = paused;
    round.hosts = kGangs[random_() % kGangs.size()];
    round.victim = static_cast<int>(random_() % round.hosts.size());
    round.after_us = static_cast<int>(random_() % 300'000);
#ifdef GANGWAY_HAS_FABRIC
    round.over_fabric = random_() % 2 == 0;
#else
    round.over_fabric = false;
#endif
    return round;
  }

  void begin(const Round& round, int number) {
    Variables more = {{"GANGWAY_TEST_SEED", std::to_string(number)},
                      {"MASTER_PORT", std::to_string(20'000 + number % 10'000)}};
    if (round.kind == cut || round.kind == stopped) more["GANGWAY_LIVENESS_MS"] = "1000";
#ifdef GANGWAY_HAS_FABRIC
    if (round.over_fabric) {
      more["GANGWAY_WIRE"] = "fabric";
      more["FI_PROVIDER"] = "tcp";
      more["GANGWAY_MODULES"] = placed("@build@/capi");
    }
#endif
    for (size_t r = 0; r < round.hosts.size(); ++r) unlink(output_of(static_cast<int>(r)).c_str());
    start(round.hosts, "storm", more);
    for (size_t r = 0; r < round.hosts.size(); ++r)
      for (int i = 0;
           i < 6000 && text_of_file(output_of(static_cast<int>(r))).find("began") == std::string::npos; ++i)
        usleep(10'000);
    usleep(static_cast<useconds_t>(round.after_us));
  }

  // Returns when it happened.
  int64_t happen(const Round& round) {
    const pid_t victim = children_[static_cast<size_t>(round.victim)];
    const std::string host = name(round.hosts[static_cast<size_t>(round.victim)]);
    const int64_t at = now_ns();
    switch (round.kind) {
      case killed: kill(victim, SIGKILL); break;
      case aborted: kill(victim, SIGUSR1); break;
      case cut: EXPECT_TRUE(shell("ip -n " + host + " link set eth0 down")); break;
      default:
        kill(victim, SIGSTOP);
        usleep(kStop_us);
        kill(victim, SIGCONT);
        if (round.kind != paused) break;
        usleep(200'000);
        kill(children_[0], SIGTERM);
    }
    return at;
  }

  // Waits for all ranks, and kills those that have hung. Returns which had.
  std::vector<bool> wait_for_all() {
    std::vector<bool> has_ended(children_.size()), hung(children_.size());
    for (int64_t until = now_ns() + kHung_ms * 1'000'000;;) {
      bool all = true;
      for (size_t r = 0; r < children_.size(); ++r) {
        siginfo_t info{};
        if (!has_ended[r]) waitid(P_PID, static_cast<id_t>(children_[r]), &info, WEXITED | WNOHANG | WNOWAIT);
        has_ended[r] = has_ended[r] || info.si_pid != 0;
        all = all && has_ended[r];
      }
      if (all) return hung;
      if (now_ns() > until) break;
      usleep(2000);
    }
    for (size_t r = 0; r < children_.size(); ++r)
      if (!has_ended[r]) hung[r] = true, kill(children_[r], SIGKILL);
    return hung;
  }

  // Whether a rank ended as the accident wants it to.
  static bool is_right(const Round& round, int rank, const Ended& one) {
    if (round.kind == paused) return one.status == 0;
    const auto names = [&](int peer) {
      return one.output.find("(peer " + std::to_string(peer) + ")") != std::string::npos;
    };
    const bool is_victim = rank == round.victim;
    if (is_victim && round.kind == killed) return one.status == 128 + SIGKILL;
    // The others have lost it, which it hears in one way or another.
    if (is_victim && round.kind == stopped) return one.status >= 10 && !names(rank);
    // A rank that waits in a child of the aborted gang hears that a rank has left: the aborting one, or one
    // that has heard of the abort and has ended before. The text says who aborted.
    const bool is_in_child =
        round.kind == aborted && one.output.find("PEER_LOST: child.") != std::string::npos;
    const Code code = round.kind == aborted && !is_in_child ? Code::aborted : Code::peer_lost;
    if (one.status != 10 + static_cast<int>(code)) return false;
    if (is_in_child)
      return one.output.find(text("aborted by rank ", round.victim)) != std::string::npos && !names(rank);
    if (round.kind == aborted && is_victim) return true;
    if (round.kind != cut) return names(round.victim);
    for (size_t r = 0; r < round.hosts.size(); ++r)
      if (round.hosts[r] != round.hosts[static_cast<size_t>(rank)] && names(static_cast<int>(r))) return true;
    return false;
  }

  void run(const Round& round, int number) {
    Row& row = rows_[round.over_fabric ? 1 : 0][round.kind];
    ++row.rounds;
    begin(round, number);
    const int64_t at = happen(round);
    const std::vector<bool> hung = wait_for_all();
    const std::vector<Ended> all = finish();
    for (size_t r = 0; r < all.size(); ++r) {
      const bool is_right_one = is_right(round, static_cast<int>(r), all[r]);
      if (hung[r]) ++row.hung;
      if (!is_right_one && !hung[r]) ++row.wrong;
      if (hung[r] || !is_right_one) {
        const std::string said =
            text("round ", number, " (", kNames[round.kind], " of rank ", round.victim, " of ",
                 testing::PrintToString(round.hosts), round.over_fabric ? ", fabric" : ", sockets",
                 "): rank ", r, hung[r] ? " hung" : "", ", status ", all[r].status, "\n", all[r].output);
        std::printf("%s\n", said.c_str());
        ++failures_;
      }
      const size_t failed = all[r].output.find("failed at ");
      if (failed == std::string::npos || static_cast<int>(r) == round.victim) continue;
      row.took.push_back(static_cast<double>(std::atoll(all[r].output.c_str() + failed + 10) - at) / 1e6);
    }
    if (round.kind != cut) return;
    const std::string host = name(round.hosts[static_cast<size_t>(round.victim)]);
    EXPECT_TRUE(shell("ip -n " + host + " link set eth0 up"));
  }

  void print() {
    std::printf("%-16s%8s%8s%12s%12s%12s%8s%8s\n", "accident", "rounds", "errors", "median ms", "p99 ms",
                "max ms", "wrong", "hung");
    for (const bool fabric : {false, true})
      for (int kind = 0; kind < kKinds; ++kind) {
        Row& row = rows_[fabric ? 1 : 0][static_cast<size_t>(kind)];
        if (row.rounds == 0) continue;
        std::sort(row.took.begin(), row.took.end());
        const auto at = [&](double share) {
          if (row.took.empty()) return 0.0;
          return row.took[static_cast<size_t>(share * static_cast<double>(row.took.size() - 1))];
        };
        std::printf("%-6s %-9s%8d%8zu%12.1f%12.1f%12.1f%8d%8d\n", kNames[static_cast<size_t>(kind)],
                    fabric ? "fabric" : "sockets", row.rounds, row.took.size(), at(0.5), at(0.99), at(1),
                    row.wrong, row.hung);
      }
    std::fflush(stdout);
  }

  std::mt19937 random_{4321};
  std::array<std::array<Row, kKinds>, 2> rows_;
  int failures_ = 0;
};

TEST_F(HostsStorm, EveryRankEndsAndNamesTheRightOne) {
  const char* const wanted = std::getenv("GANGWAY_TEST_KILLS");
  const int rounds = wanted == nullptr ? 12 : std::atoi(wanted);
  ASSERT_GT(rounds, 0) << "GANGWAY_TEST_KILLS is " << wanted;
  for (int i = 0; i < rounds; ++i) {
    run(draw(i, rounds >= 100), i);
    if (rounds >= 100 && (i + 1) % 50 == 0) print();
  }
  print();
  EXPECT_EQ(failures_, 0);
}

}  // namespace
}  // namespace gangway::test
