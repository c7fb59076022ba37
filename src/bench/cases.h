// What the bench can time: families of calls, and the cases that they and the axes make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/arena.h"
#include "core/law.h"
#include "core/row_ops.h"

namespace dspark {

/// How a case makes laws of rows.
enum class BenchRule : std::uint8_t {
  unused,       ///< the family has none
  plain,        ///< temperature 1
  top_p,        ///< temperature 1, top-p 0.95
  top_k_top_p,  ///< temperature 1, top-k, top-p 0.95
  greedy,
};

/// The sizes that a family depends on; bits of Family::axes.
enum BenchAxis : unsigned {
  kAxisBatch = 1,
  kAxisVocab = 2,
  kAxisRank = 4,
  kAxisBlock = 8,
  kAxisHidden = 16,
  kAxisAnchors = 32,
  kAxisTopK = 64,  ///< beside the rules that have one
};

/// The values of each axis. Lists multiply; none may be empty.
struct BenchAxes {
  std::vector<std::int32_t> batch = {1, 64};
  std::vector<std::int32_t> vocab = {151936};
  std::vector<std::int32_t> rank = {256};
  std::vector<std::int32_t> block_size = {7};
  std::vector<std::int32_t> hidden = {4096};
  std::vector<std::int32_t> top_k = {50};
  std::vector<std::int32_t> anchors = {250};
  std::vector<Products> products = {Products::exact, Products::tensor};
};

struct Family;

/// The depths of a family's products, which decide whether they run on tensor cores.
enum class ProductDepths : std::uint8_t {
  none,             ///< no products
  hidden,           ///< hidden states times lm_head
  markov,           ///< Markov rows times w2, as the proposals multiply them
  hidden_and_rank,  ///< hidden states and Markov rows in one sum
};

/// One thing to time. Sizes on which its family does not depend are 0.
struct BenchCase {
  const Family* family = nullptr;
  BenchRule rule = BenchRule::unused;
  Products products = Products::exact;
  std::int32_t batch = 0;
  std::int32_t vocab = 0;
  std::int32_t rank = 0;
  std::int32_t block_size = 0;
  std::int32_t hidden = 0;
  std::int32_t top_k = 0;
  std::int32_t anchors = 0;

  /// Entries that do not depend on each other: anchors, or the batch; 1 where there is neither.
  [[nodiscard]] std::int32_t entries() const {
    return anchors > 0 ? anchors : batch > 0 ? batch : 1;
  }
  /// K where it is a size of the family; 0 where it is none or belongs to the rule.
  [[nodiscard]] std::int32_t own_top_k() const;
  [[nodiscard]] SamplingRule sampling_rule() const;
};

/// How an output is held against the reference where products are not exact; everything else is
/// compared bit for bit.
enum class Compare : std::uint8_t {
  bits,
  logits,                  ///< f32, see kLogitBound
  probabilities,           ///< f32, see kProbabilityBound
  filtered_probabilities,  ///< the same, and kBoundaryBound
  pairs,                   ///< PairOutcome, the bounds of what it holds
};
/// Largest difference of a logit whose products were accumulated in another order.
inline constexpr double kLogitBound = 0x1p-10;
/// Largest relative difference of a probability, and of Σ min(p, q) absolutely, that follows.
inline constexpr double kProbabilityBound = 0x1p-8;
/// Largest absolute difference at the boundary of a filter, which moves with the mass above it.
inline constexpr double kBoundaryBound = 0x1p-12;

/// Something that a call writes, wholly or over zeros: `entries` times `entry_bytes`. Those of the
/// first entries do not depend on how many there are, unless the family looks at the batch as a
/// whole.
struct BenchOutput {
  std::string_view name;
  void* data = nullptr;
  std::int64_t entries = 0;
  std::size_t entry_bytes = 0;
  Compare compare = Compare::bits;
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(entries) * entry_bytes;
  }
};

/// A case on one set of inputs.
struct PreparedCase {
  std::function<void()> enqueue;  ///< may be called again and again
  std::vector<BenchOutput> outputs;
  const std::uint32_t* status = nullptr;  ///< a word that must stay 0; null: none
};

/// A family of cases. To add one, add a line to the table in families.cpp.
struct Family {
  const char* name;
  const char* what;                   ///< one line
  unsigned axes;                      ///< BenchAxis bits
  std::vector<BenchRule> rules;       ///< at least one
  ProductDepths depths;               ///< with products: a case for each way to accumulate
  bool whole_batch;                   ///< entries depend on each other, or there is but one
  std::int32_t reference_entries;     ///< entries that the reference evaluates
  double (*bytes)(const BenchCase&);  ///< fewest bytes a call must read and write
  double (*flops)(const BenchCase&);  ///< of products, a multiply-add counts 2; null: none
  PreparedCase (*prepare)(const BenchCase&, Arena&);
  /// Why the operations do not take these sizes; null text where they do. Null: they take all.
  const char* (*refuses)(const BenchCase&) = nullptr;

  [[nodiscard]] bool has_products() const { return depths != ProductDepths::none; }
};

/// All families, in the order in which they are shown.
[[nodiscard]] const std::vector<Family>& bench_families();

/// "-", "plain", "top-p 0.95", "top-k 50, top-p 0.95" or "greedy".
[[nodiscard]] std::string rule_text(const BenchCase& bench_case);
/// "exact", "tensor", or "-" for a family without products.
[[nodiscard]] const char* products_text(const BenchCase& bench_case);
/// The case in one line: "sampled_proposal (plain, exact, batch 1, vocab 151936, ...)".
[[nodiscard]] std::string case_text(const BenchCase& bench_case);

/// Why the products of a case that asks for tensor cores would be exact on this backend, whose
/// operands are f16; empty where they would not, and for cases that do not ask.
[[nodiscard]] std::string why_not_tensor(const BenchCase& bench_case, const Backend& backend);

/// The cases of the families called `only` (all of them if it is empty), each once. Throws
/// Error(usage) where a name is none.
[[nodiscard]] std::vector<BenchCase> make_cases(std::span<const std::string> only,
                                                const BenchAxes& axes);

}  // namespace dspark
