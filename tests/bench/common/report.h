// Keeps what a benchmark has measured when it is stopped. SIGINT and SIGTERM end the measuring, and the program
// then prints the tables of what is there. The file of numbers is written again after every part.
//
// Thread rule: one thread.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gangway::bench {

// Takes over SIGINT and SIGTERM. The second of them ends the program at once.
void watch_for_stop();
bool stopped();
int exit_status();  // 0, or 128 + the signal

// Replaces the file in one rename; an empty path writes nothing.
void save(const nlohmann::json& report, const std::string& path);

}  // namespace gangway::bench
