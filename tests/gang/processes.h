// Ranks as processes for tests: forks one child per rank before any engine exists in this process, gives them
// a store in shared memory, and collects how they ended.
//
//   Processes ranks(4, [](int rank, const std::shared_ptr<gangway::Store>& store, Report& report) { ... });
//   ranks.expect_all_well();
//
// A body that throws or fails an assertion ends its child with code 1 and its text in the report. Children
// end with _exit, so nothing of the parent's is torn down twice.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "gang/rendezvous/store.h"

namespace gangway::test {

// What a rank's process and the test tell each other, on a page that both see.
struct Report {
  // The body writes these.
  std::atomic<int> stage;          // how far it has come, in steps of its own
  std::atomic<int64_t> at_ns;      // when it saw its failure, or its last success
  std::atomic<int64_t> code;       // the Code of its error
  std::atomic<int64_t> peer;       // the peer that its error names
  std::atomic<int64_t> gang_code;  // the Code of the root gang's own error; 0: the gang is whole
  std::atomic<int> has_failed;     // until_failure() has filled in the error
  std::atomic<int64_t> values[8];  // its results, at places that the test names
  char text[1024];                 // the text of its error
  // The test writes these.
  std::atomic<int> turn;     // the body may go on up to this stage
  std::atomic<int> may_end;  // the body may return

  void say(const std::string& words) { std::snprintf(text, sizeof text, "%s", words.c_str()); }
};

// A key-value store in memory that a fork shares.
class SharedStore final : public Store {
 public:
  SharedStore() : table_(static_cast<Table*>(map(sizeof(Table)))) {}

  void put(const std::string& key, const std::string& value) override {
    const Lock lock(*table_);
    Entry* entry = find(key);
    for (Entry& e : table_->entries)
      if (entry == nullptr && e.key[0] == 0) entry = &e;
    if (entry == nullptr || key.size() >= sizeof entry->key || value.size() > sizeof entry->value)
      fail(Code::internal, "the test's store is full");
    std::memcpy(entry->key, key.c_str(), key.size() + 1);
    std::memcpy(entry->value, value.data(), value.size());
    entry->size = value.size();
  }
  std::optional<std::string> get(const std::string& key) override {
    const Lock lock(*table_);
    const Entry* const entry = find(key);
    if (entry == nullptr) return std::nullopt;
    return std::string(entry->value, entry->size);
  }
  void remove(const std::string& key) override {
    const Lock lock(*table_);
    if (Entry* const entry = find(key)) entry->key[0] = 0;
  }
  std::string wait(const std::string& key, Deadline deadline) override {
    for (;;) {
      if (auto value = get(key)) return *value;
      if (deadline.passed()) fail(Code::timeout, "the test's store has no ", key);
      usleep(200);
    }
  }

  static void* map(size_t bytes) {
    void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail(Code::internal, "mmap of ", bytes, " bytes");
    return p;
  }

 private:
  struct Entry {
    char key[256];
    char value[4096];
    size_t size;
  };
  struct Table {
    std::atomic<uint32_t> lock;
    Entry entries[512];
  };
  struct Lock {
    Table& table;
    explicit Lock(Table& t) : table(t) {
      while (table.lock.exchange(1, std::memory_order_acquire) != 0) usleep(50);
    }
    ~Lock() { table.lock.store(0, std::memory_order_release); }
  };
  Entry* find(const std::string& key) const {
    for (Entry& e : table_->entries)
      if (key == e.key) return &e;
    return nullptr;
  }

  Table* table_;  // never unmapped: children may outlive the test's objects
};

class Processes {
 public:
  template <typename Body>
  Processes(int size, Body&& body) : store_(std::make_shared<SharedStore>()) {
    for (int r = 0; r < size; ++r) reports_.push_back(static_cast<Report*>(SharedStore::map(4096)));
    std::fflush(nullptr);
    for (int r = 0; r < size; ++r) {
      const pid_t pid = fork();
      if (pid == 0) {
        alarm(240);  // no child outlives a broken test for long
        int code = 0;
        try {
          body(r, std::static_pointer_cast<Store>(store_), report(r));
          code = testing::Test::HasFailure() ? 1 : 0;
        } catch (const Error& error) {
          report(r).say(text(name(error.code()), ": ", error.message()));
          code = 1;
        } catch (const std::exception& error) {
          report(r).say(error.what());
          code = 1;
        }
        std::fflush(nullptr);
        _exit(code);
      }
      pids_.push_back(pid);
      statuses_.push_back(-1);
    }
  }
  ~Processes() {
    for (size_t r = 0; r < pids_.size(); ++r)
      if (statuses_[r] == -1) kill(static_cast<int>(r), SIGKILL);
    join();
    for (Report* report : reports_) munmap(report, 4096);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  Report& report(int r) { return *reports_[static_cast<size_t>(r)]; }
  Store& store() { return *store_; }
  pid_t pid(int r) const { return pids_[static_cast<size_t>(r)]; }
  void kill(int r, int signal) {
    if (statuses_[static_cast<size_t>(r)] == -1) ::kill(pid(r), signal);  // else the number may be another's
  }
  // Has rank r's process not ended? Collects it when it has.
  bool runs(int r) {
    int& status = statuses_[static_cast<size_t>(r)];
    return status == -1 && waitpid(pid(r), &status, WNOHANG) == 0;
  }
  // Waits until rank r's report says so, or its process has ended, which is for the test to tell.
  template <typename Happened>
  void wait_until(int r, Happened&& happened) {
    while (!happened(report(r)) && runs(r)) usleep(200);
  }
  void wait_for_stage(int r, int stage) {
    wait_until(r, [&](const Report& report) { return report.stage >= stage; });
  }
  // Waits for all; the wait statuses.
  const std::vector<int>& join() {
    for (size_t r = 0; r < pids_.size(); ++r)
      if (statuses_[r] == -1) waitpid(pids_[r], &statuses_[r], 0);
    return statuses_;
  }
  int status(int r) {  // as waitpid tells it
    join();
    return statuses_[static_cast<size_t>(r)];
  }
  bool ended_well(int r) {
    join();
    return WIFEXITED(statuses_[static_cast<size_t>(r)]) &&
           WEXITSTATUS(statuses_[static_cast<size_t>(r)]) == 0;
  }
  void expect_all_well() {
    for (size_t r = 0; r < pids_.size(); ++r)
      EXPECT_TRUE(ended_well(static_cast<int>(r)))
          << "rank " << r << ", status " << statuses_[r] << ": " << reports_[r]->text;
  }

 private:
  std::shared_ptr<SharedStore> store_;
  std::vector<Report*> reports_;
  std::vector<pid_t> pids_;
  std::vector<int> statuses_;
};

}  // namespace gangway::test
