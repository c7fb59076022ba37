// A backend that must not be used: every operation fails the test.
#pragma once

#include <stdexcept>

#include "replay/backend.h"

namespace dspark {

class IdleBackend : public Backend {
 public:
  [[nodiscard]] std::string name() const override { return "idle"; }
  [[nodiscard]] std::string device() const override { return "none"; }
  [[nodiscard]] std::size_t free_memory() const override { return 0; }
  void upload(void*, const void*, std::size_t) override { used(); }
  void download(void*, const void*, std::size_t) override { used(); }
  void fill(void*, int, std::size_t) override { used(); }
  void copy(void*, const void*, std::size_t) override { used(); }
  void synchronize() override { used(); }
  [[nodiscard]] DeviceFacts facts() const override { return {}; }
  [[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>&) override { used(); }
  [[nodiscard]] double measure(const std::function<void()>&) override { used(); }
  void project(const ProjectArgs&) override { used(); }
  void widen(const WidenArgs&) override { used(); }
  void markov_rows(const MarkovRowsArgs&) override { used(); }
  void draft_rows(const DraftRowsArgs&) override { used(); }
  void confidence_rows(const ConfidenceRowsArgs&) override { used(); }
  void row_laws(const RowLawsArgs&) override { used(); }
  void compare_pairs(const ComparePairsArgs&) override { used(); }
  void sample_rows(const SampleRowsArgs&) override { used(); }
  void sample_excess(const SampleExcessArgs&) override { used(); }
  void build_verify_tokens(const BuildVerifyTokensArgs&) override { used(); }
  void fill_proposal_lengths(const FillProposalLengthsArgs&) override { used(); }
  void greedy_accept(const GreedyAcceptArgs&) override { used(); }
  void confidence_scores(const ConfidenceScoresArgs&) override { used(); }
  void threshold_lengths(const ThresholdLengthsArgs&) override { used(); }
  void sps_lengths(const SpsLengthsArgs&) override { used(); }
  void batch_schedule(const BatchScheduleArgs&) override { used(); }
  void logits_to_probabilities(const LogitsToProbabilitiesArgs&) override { used(); }
  void fill_uniforms(const FillUniformsArgs&) override { used(); }
  void build_markov_logits(const BuildMarkovLogitsArgs&) override { used(); }
  void sample_probability_rows(const SampleProbabilityRowsArgs&) override { used(); }
  void store_draft_step_probabilities(const StoreDraftStepProbabilitiesArgs&) override { used(); }
  void vanilla_markov_sample(const VanillaMarkovSampleArgs&) override { used(); }
  void probabilistic_accept(const ProbabilisticAcceptArgs&) override { used(); }
  void quantize_markov_w2(const QuantizeMarkovW2Args&) override { used(); }
  void markov_greedy_step(const MarkovGreedyStepArgs&) override { used(); }
  void finalize_greedy_draft_tokens(const FinalizeGreedyDraftTokensArgs&) override { used(); }
  void greedy_propose(const GreedyProposeArgs&) override { used(); }
  void select_top_k(const SelectTopKArgs&) override { used(); }
  void normalize_top_k_rows(const NormalizeTopKRowsArgs&) override { used(); }
  void store_draft_step_top1(const StoreDraftStepTop1Args&) override { used(); }
  void sample_top_k_rows(const SampleTopKRowsArgs&) override { used(); }

 private:
  [[noreturn]] static void used() { throw std::logic_error("the backend was used"); }
  void* allocate_bytes(std::size_t) override { used(); }
  void free_bytes(void*) noexcept override {}
};

}  // namespace dspark
