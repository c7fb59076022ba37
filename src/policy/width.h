// How the drafts of several requests stand in one verify forward.
#pragma once

namespace dspark {

enum class Width {
  ragged,   ///< each request its own: Σ (1 + l) tokens
  uniform,  ///< as wide as the longest: R (1 + max l) (Edge-LLM; backends without ragged support)
  cap_accept,  ///< all drafts, and acceptance is cut afterwards: R (1 + P) (SGLang's diagnostic
               ///< mode)
};

/// "ragged", "uniform" or "cap_accept".
[[nodiscard]] constexpr const char* width_name(Width width) {
  return width == Width::ragged ? "ragged" : width == Width::uniform ? "uniform" : "cap_accept";
}

/// Requests in flight that can be asked for.
inline constexpr int kMaxConcurrency = 4096;

}  // namespace dspark
