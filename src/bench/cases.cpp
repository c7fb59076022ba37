#include "bench/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/greedy_proposal.h"
#include "support/error.h"

namespace dspark {
namespace {

constexpr double kTopP = 0.95;

// The values that a family goes through on one axis.
std::vector<std::int32_t> values_on(const Family& family, BenchAxis axis,
                                    const std::vector<std::int32_t>& values) {
  return (family.axes & axis) != 0 ? values : std::vector<std::int32_t>{0};
}

// Adds a copy of each case with each value.
template <class T>
void multiply(std::vector<BenchCase>& cases, T BenchCase::*field, const std::vector<T>& values) {
  std::vector<BenchCase> out;
  for (const BenchCase& one : cases) {
    for (const T& value : values) {
      out.push_back(one);
      out.back().*field = value;
    }
  }
  cases = std::move(out);
}

std::vector<BenchCase> cases_of(const Family& family, const BenchAxes& axes) {
  std::vector<BenchCase> out;
  for (const BenchRule rule : family.rules) {
    BenchCase first;
    first.family = &family;
    first.rule = rule;
    std::vector<BenchCase> cases = {first};
    if (family.has_products()) multiply(cases, &BenchCase::products, axes.products);
    multiply(cases, &BenchCase::vocab, values_on(family, kAxisVocab, axes.vocab));
    multiply(cases, &BenchCase::hidden, values_on(family, kAxisHidden, axes.hidden));
    multiply(cases, &BenchCase::rank, values_on(family, kAxisRank, axes.rank));
    multiply(cases, &BenchCase::block_size, values_on(family, kAxisBlock, axes.block_size));
    if (rule == BenchRule::top_k_top_p || (family.axes & kAxisTopK) != 0) {
      multiply(cases, &BenchCase::top_k, axes.top_k);
    }
    multiply(cases, &BenchCase::anchors, values_on(family, kAxisAnchors, axes.anchors));
    multiply(cases, &BenchCase::batch, values_on(family, kAxisBatch, axes.batch));
    out.insert(out.end(), cases.begin(), cases.end());
  }
  return out;
}

const Family& family_called(const std::string& name) {
  const std::vector<Family>& families = bench_families();
  const auto found = std::find_if(families.begin(), families.end(),
                                  [&](const Family& family) { return family.name == name; });
  if (found != families.end()) return *found;
  throw usage_error("--only", fmt::format("'{}' is not a family", name),
                    "--list tells their names");
}

}  // namespace

std::int32_t BenchCase::own_top_k() const { return (family->axes & kAxisTopK) != 0 ? top_k : 0; }

SamplingRule BenchCase::sampling_rule() const {
  const bool filters_top_p = rule == BenchRule::top_p || rule == BenchRule::top_k_top_p;
  return make_sampling_rule(rule == BenchRule::greedy ? 0 : 1, top_k, filters_top_p ? kTopP : 1,
                            TopPRule::water_filling, vocab);
}

std::string rule_text(const BenchCase& bench_case) {
  switch (bench_case.rule) {
    case BenchRule::unused:
      return "-";
    case BenchRule::plain:
      return "plain";
    case BenchRule::top_p:
      return fmt::format("top-p {}", kTopP);
    case BenchRule::top_k_top_p:
      return fmt::format("top-k {} top-p {}", bench_case.top_k, kTopP);
    case BenchRule::greedy:
      return "greedy";
  }
  throw internal_error("rule_text", "unknown rule");
}

const char* products_text(const BenchCase& bench_case) {
  if (!bench_case.family->has_products()) return "-";
  return bench_case.products == Products::tensor ? "tensor" : "exact";
}

std::string case_text(const BenchCase& bench_case) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (bench_case.rule != BenchRule::unused) add(rule_text(bench_case));
  if (bench_case.family->has_products()) add(products_text(bench_case));
  for (const auto& [name, value] : {std::pair{"batch", bench_case.batch},
                                    {"anchors", bench_case.anchors},
                                    {"vocab", bench_case.vocab},
                                    {"rank", bench_case.rank},
                                    {"block size", bench_case.block_size},
                                    {"hidden", bench_case.hidden},
                                    {"top-k", bench_case.own_top_k()}}) {
    if (value > 0) add(fmt::format("{} {}", name, value));
  }
  return fmt::format("{} ({})", bench_case.family->name, text);
}

std::string why_not_tensor(const BenchCase& bench_case, const Backend& backend) {
  if (!bench_case.family->has_products() || bench_case.products != Products::tensor) return {};
  const auto takes = [&](std::int64_t depth) {
    return backend.has_tensor_products(DType::f16, DType::f16, depth);
  };
  constexpr std::int64_t kEasy = 64;  // a depth that all tensor cores take
  if (!takes(kEasy)) {
    return fmt::format("the {} backend has no tensor cores here, products are exact",
                       backend.name());
  }
  const ProductDepths depths = bench_case.family->depths;
  // e4m3 codes are widened to f16; Family::refuses has seen to their own limit.
  if (depths == ProductDepths::markov &&
      !(dspark_fused_greedy_supported(bench_case.rank) && takes(bench_case.rank))) {
    return "tensor cores need a rank that is a multiple of 8 and at most 512 for the Markov bias";
  }
  if (depths != ProductDepths::markov && !takes(bench_case.hidden)) {
    return "tensor cores need a hidden size that is a multiple of 8";
  }
  if (depths == ProductDepths::hidden_and_rank && !takes(bench_case.rank)) {
    return "tensor cores need a rank that is a multiple of 8";
  }
  return {};
}

std::vector<BenchCase> make_cases(std::span<const std::string> only, const BenchAxes& axes) {
  for (const std::string& name : only) static_cast<void>(family_called(name));
  std::vector<BenchCase> out;
  for (const Family& family : bench_families()) {
    if (!only.empty() && std::find(only.begin(), only.end(), family.name) == only.end()) continue;
    const std::vector<BenchCase> cases = cases_of(family, axes);
    out.insert(out.end(), cases.begin(), cases.end());
  }
  return out;
}

}  // namespace dspark
