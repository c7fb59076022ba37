// A backend with memory of its own that does everything as late as it may: operations and copies
// wait in their queues until somebody waits for them, or until the other queue must. Whoever looks
// at results, or uses memory again, too early gets other numbers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "replay/backend.h"
#include "tests/replay/idle_backend.h"

namespace dspark {

class LazyBackend : public IdleBackend {
 public:
  /// `early_copies`: the queue of copies is as early as it may be instead.
  explicit LazyBackend(bool early_copies = false) : early_copies_(early_copies) {}
  ~LazyBackend() override {
    EXPECT_TRUE(lists_[0].empty() && lists_[1].empty()) << "work is left when the backend goes";
  }

  [[nodiscard]] std::string name() const override { return "lazy"; }
  [[nodiscard]] std::string device() const override { return "none"; }
  [[nodiscard]] std::size_t free_memory() const override { return cpu_->free_memory(); }
  void upload(void* target, const void* source, std::size_t bytes) override {
    const auto* from = static_cast<const char*>(source);
    later([target, copy = std::vector<char>(from, from + bytes)] {
      if (!copy.empty()) std::memcpy(target, copy.data(), copy.size());
    });
  }
  void download(void* target, const void* source, std::size_t bytes) override {
    run(Queue::operations, last(Queue::operations));
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void fill(void* target, int value, std::size_t bytes) override {
    later([target, value, bytes] { std::memset(target, value, bytes); });
  }
  void synchronize() override {
    run(Queue::copies, last(Queue::copies));
    run(Queue::operations, last(Queue::operations));
  }

  void enqueue_upload(Queue queue, void* target, const void* source, std::size_t bytes) override {
    if (bytes == 0) return;
    add(queue, [target, source, bytes] { std::memcpy(target, source, bytes); });
  }
  void enqueue_download(void* target, const void* source, std::size_t bytes) override {
    if (bytes == 0) return;
    std::memset(target, 0xA5, bytes);  // nobody may still need what was there
    later([target, source, bytes] { std::memcpy(target, source, bytes); });
  }
  std::unique_ptr<Fence> make_fence() override { return std::make_unique<Mark>(); }
  void mark(Queue queue, Fence& fence) override {
    static_cast<Mark&>(fence).queue = queue;
    static_cast<Mark&>(fence).position = last(queue);
  }
  void hold(Queue queue, const Fence& fence) override {
    add(queue, [this, mark = position_of(fence)] { run(mark.first, mark.second); });
  }
  void wait(const Fence& fence) override {
    const auto [queue, position] = position_of(fence);
    run(queue, position);
  }

  void project(const ProjectArgs& args) override { call(&Backend::project, args); }
  void widen(const WidenArgs& args) override { call(&Backend::widen, args); }
  void markov_rows(const MarkovRowsArgs& args) override { call(&Backend::markov_rows, args); }
  void draft_rows(const DraftRowsArgs& args) override { call(&Backend::draft_rows, args); }
  void confidence_rows(const ConfidenceRowsArgs& args) override {
    call(&Backend::confidence_rows, args);
  }
  void row_laws(const RowLawsArgs& args) override { call(&Backend::row_laws, args); }
  void compare_pairs(const ComparePairsArgs& args) override { call(&Backend::compare_pairs, args); }
  void sample_rows(const SampleRowsArgs& args) override { call(&Backend::sample_rows, args); }
  void sample_excess(const SampleExcessArgs& args) override { call(&Backend::sample_excess, args); }
  // What a pass over rounds needs.
  void greedy_accept(const GreedyAcceptArgs& args) override { call(&Backend::greedy_accept, args); }
  void confidence_scores(const ConfidenceScoresArgs& args) override {
    call(&Backend::confidence_scores, args);
  }
  void logits_to_probabilities(const LogitsToProbabilitiesArgs& args) override {
    call(&Backend::logits_to_probabilities, args);
  }
  void build_markov_logits(const BuildMarkovLogitsArgs& args) override {
    call(&Backend::build_markov_logits, args);
  }
  void sample_probability_rows(const SampleProbabilityRowsArgs& args) override {
    call(&Backend::sample_probability_rows, args);
  }
  void store_draft_step_probabilities(const StoreDraftStepProbabilitiesArgs& args) override {
    call(&Backend::store_draft_step_probabilities, args);
  }
  void probabilistic_accept(const ProbabilisticAcceptArgs& args) override {
    call(&Backend::probabilistic_accept, args);
  }

 private:
  using Work = std::function<void()>;
  struct Mark : Fence {
    Queue queue = Queue::operations;
    std::size_t position = 0;
  };

  [[nodiscard]] std::deque<Work>& list(Queue queue) { return lists_[static_cast<int>(queue)]; }
  /// How much was enqueued in `queue` so far.
  [[nodiscard]] std::size_t last(Queue queue) {
    return done_[static_cast<int>(queue)] + list(queue).size();
  }
  static std::pair<Queue, std::size_t> position_of(const Fence& fence) {
    const auto& mark = static_cast<const Mark&>(fence);
    return {mark.queue, mark.position};
  }
  void add(Queue queue, Work work) {
    list(queue).push_back(std::move(work));
    if (queue == Queue::copies && early_copies_) run(queue, last(queue));
  }
  void later(Work work) { add(Queue::operations, std::move(work)); }
  void run(Queue queue, std::size_t position) {
    std::size_t& done = done_[static_cast<int>(queue)];
    while (done < position) {
      const Work work = std::move(list(queue).front());
      list(queue).pop_front();
      ++done;
      work();
    }
  }
  template <class Args>
  void call(void (Backend::*operation)(const Args&), const Args& args) {
    check(args);
    later([this, operation, args] { ((*cpu_).*operation)(args); });
  }

  void* allocate_bytes(std::size_t bytes) override { return ::operator new(bytes, kAlignment); }
  void free_bytes(void* data) noexcept override {
    // In the order of the operations, as on a device.
    later([data] { ::operator delete(data, kAlignment); });
    run(Queue::operations, last(Queue::operations));
  }

  static constexpr std::align_val_t kAlignment{256};
  bool early_copies_;
  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  std::deque<Work> lists_[2];
  std::size_t done_[2] = {0, 0};
};

}  // namespace dspark
