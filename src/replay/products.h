// How the products of a replay are accumulated: what was asked for, and what it comes to.
#pragma once

#include <string>

#include "replay/backend.h"
#include "trace/trace.h"

namespace dspark {

/// "exact" or "tensor".
[[nodiscard]] const char* products_name(Products products);

/// `asked`, or exact where it changes no bit: if `backend` has tensor cores for none of the
/// products that a replay of `trace` makes (logits from hidden states, the Markov bias), all are
/// exact.
[[nodiscard]] Products products_of(const Backend& backend, const TraceFile& trace,
                                   const Heads& heads, Products asked);

/// What the user is told: that `asked` comes to exact products, or that exact ones of hidden states
/// could run on tensor cores. Empty if neither.
[[nodiscard]] std::string products_notice(const Backend& backend, const TraceFile& trace,
                                          const Heads& heads, Products asked);

}  // namespace dspark
