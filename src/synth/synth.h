// Synthetic traces: any size, a known acceptance, and heads that matter.
//
// The vocabulary is split into two halves, A and B. The target gives B no mass. The draft row of a
// slot carries the target's own law over A, reached only through the Markov correction of the
// recorded previous token, and a gap that pushes B down or up: the mass it leaves on A is the
// slot's acceptance probability, exactly. Everything a slot needs is in its hidden state; the
// logits are hidden states times `lm_head`, so that a trace of hidden states and one of logits say
// the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replay/backend.h"
#include "trace/schema.h"
#include "trace/writer.h"

namespace dspark {

/// What stands in the trace: final hidden states (and `lm_head` in the heads), logits, or both.
enum class StoredRows : std::uint8_t { hidden, logits, both };

struct SynthOptions {
  TraceKind kind = TraceKind::anchors;  ///< anchors or rounds
  std::int64_t sequences = 4;           ///< sequences (anchors) or requests (rounds), 1..2^31-1
  std::int64_t length = 256;          ///< positions per sequence, or rounds per request, 1..2^31-1
  std::int64_t vocab_size = 8192;     ///< V, 2..kMaxVocab
  std::int64_t hidden_size = 512;     ///< H, of draft and target alike; at least max(R, 1) + 3
  std::int64_t markov_rank = 64;      ///< R; 0: no Markov head
  std::int64_t block_size = 7;        ///< P, 1..kMaxBlock
  StoredType type = StoredType::f16;  ///< of hidden states, logits and heads
  StoredRows store = StoredRows::hidden;
  /// Probability that slot k is accepted given that slots 1..k-1 were, each in [0, 1]; the last
  /// value serves the slots that are left. At least one value, at most P.
  std::vector<double> acceptance = {0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55};
  /// The acceptance of single rows is spread evenly over a_k ± spread · min(a_k, 1 - a_k), in [0,
  /// 1]; the mean is a_k.
  double spread = 0.6;
  double temperature = 1.0;  ///< 0 (or below 1e-3): greedy; else at most 100
  std::int64_t top_k = 0;    ///< 0: off
  double top_p = 1.0;  ///< in (0, 1]; 1: off. Water filling (core/law.h) is the rule the acceptance
                       ///< holds under.
  std::uint64_t seed = 0;  ///< below 2^63
  bool confidence = true;  ///< write a confidence head (and the draft hidden states that it reads)
  std::string
      heads_file;  ///< plain name of a heads file beside the trace; empty: /heads inside the trace
  double logit_std = 2.5;       ///< of the target's logits over A, 0.1..20: larger is more peaked
  double markov_std = 1.5;      ///< of the Markov bias, 0.1..20
  bool random_lengths = false;  ///< rounds: proposal lengths drawn from 1..P instead of P
  int threads = 1;              ///< host threads; no result depends on them
};

/// Checks options, alone and against each other. Throws Error(usage) naming the option as the
/// command line calls it.
void validate(const SynthOptions& options);

/// Called with (blocks written, blocks in all) from the calling thread; may be empty.
using SynthProgress = std::function<void(std::int64_t, std::int64_t)>;
/// Called once, with the names of the temporary files as soon as they exist: what is to be removed
/// where the process ends before they get their own names. May be empty.
using SynthCreated = std::function<void(const std::vector<std::string>&)>;

/// Writes a synthetic trace to `path` (and its heads file, if one is named, beside it); both appear
/// whole or not at all.
///
/// Law. With y the recorded tokens, the measured acceptance of slot k, Σ_v min(p(v), q(v)) along y,
/// has mean a_k; the rows are independent. For temperature ≥ 1e-3 a single row meets its own value
/// within the rounding of the gap: below 1e-5 at T = 1 for f16 and wider, 1e-4 for bf16, growing as
/// 1/T. Under top-k or top-p not every value can be had (whole tokens enter and leave the kept
/// set); such a row takes one of the two nearest that can, with the probabilities that keep the
/// mean. Stored logits are rounded to `type`, which takes a little of an acceptance near 1 (1
/// becomes about 0.999 in f16 and 0.994 in bf16) and moves lower ones without bias (with top-k or
/// top-p and bf16 by up to about 0.01). At T = 0 slot k is accepted or not with probability a_k,
/// and every argmax has a margin that the rounding of `type` cannot turn.
///
/// The recorded tokens are drawn from the target rows as stored, with the recorded temperature,
/// top_k and top_p. A round of a rounds trace is drawn by the backend's runtime functions from
/// recorded uniforms on a 2^-24 grid (none at T = 0); rounds are stored with the requests of a
/// batch side by side, each request's rounds in ascending order.
///
/// Deterministic: a function of the options alone, not of threads or of the backend. Memory: in the
/// backend `lm_head` once as f16 (V · H · 2 bytes), for rounds `markov_w1` as f32, and 256 MiB of
/// vocabulary-wide rows (never less than one row, or one round); on the host up to twice as many
/// rows, and the recorded tokens. Waits for the backend.
///
/// Throws Error(usage) for options and for a path that cannot be created, Error(device) where the
/// backend's memory does not suffice, Error(internal) where writing fails.
void write_synthetic_trace(Backend& backend, const SynthOptions& options, const std::string& path,
                           const SynthProgress& progress = {}, const SynthCreated& created = {});

}  // namespace dspark
