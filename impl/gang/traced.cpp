#include "gang/traced.h"

#include <atomic>
#include <utility>

#include "base/error.h"

namespace gangway {
namespace {

class TracedWork final : public Work {
 public:
  TracedWork(WorkPtr work, std::shared_ptr<Works> owner, std::string name, std::string detail,
             int64_t start_ns)
      : work_(std::move(work)),
        owner_(std::move(owner)),
        name_(std::move(name)),
        detail_(std::move(detail)),
        start_ns_(start_ns) {}
  ~TracedWork() override { ended(); }

  bool poll() override { return ended_if(work_->poll()); }
  bool poll_input() override { return work_->poll_input(); }
  void wait(Deadline deadline) override {
    work_->wait(deadline);
    ended();
  }
  void wait_input(Deadline deadline) override {
    work_->wait_input(deadline);
    ended();
  }
  void order(Stream& stream) override {
    work_->order(stream);
    ended();
  }
  void order_input(Stream& stream) override { work_->order_input(stream); }
  std::optional<Error> error() const override { return work_->error(); }

 private:
  bool ended_if(bool over) {
    if (over) ended();
    return over;
  }
  void ended() {
    if (!recorded_.exchange(true))
      owner_->tracer().add(TraceRow::collective, "collective", name_, start_ns_, Tracer::now_ns(), detail_);
  }

  const WorkPtr work_;
  const std::shared_ptr<Works> owner_;
  const std::string name_, detail_;
  const int64_t start_ns_;
  std::atomic<bool> recorded_ = false;
};

}  // namespace

std::string trace_name(std::span<const Collective> records) {
  const std::string first = name(records[0].op);
  return records.size() == 1 ? first : first + " x" + std::to_string(records.size());
}

std::string trace_detail(const std::string& gang, Channel channel, std::span<const Collective> records) {
  size_t bytes = 0;
  for (const Collective& c : records) bytes += c.count * item_bytes(c.dtype);
  std::string detail = text("\"gang\": \"", json_escaped(gang), "\", \"channel\": \"", name(channel),
                            "\", \"bytes\": ", bytes);
  if (facts(records[0].op).has_root || facts(records[0].op).is_pair)
    detail += text(", \"peer\": ", records[0].peer);
  return detail;
}

WorkPtr traced(WorkPtr work, std::shared_ptr<Works> owner, std::string name, std::string detail,
               int64_t start_ns) {
  return std::make_shared<TracedWork>(std::move(work), std::move(owner), std::move(name), std::move(detail),
                                      start_ns);
}

}  // namespace gangway
