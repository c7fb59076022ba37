// Which rows of a result an engine can run, and how it is told to.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/dspark_ops.h"
#include "replay/result.h"

namespace dspark {

/// The engines that settings are written for.
enum class Engine : std::uint8_t {
  edge_llm,
  sglang,
  tensorrt_llm,
  vllm_ascend,
  vllm,
  deepspec,
};
/// In the order of the enumeration.
[[nodiscard]] const std::vector<Engine>& engines();
/// "TensorRT-Edge-LLM", ...
[[nodiscard]] const char* engine_name(Engine engine);

/// What there is beside the row itself.
struct EngineContext {
  std::int32_t block_size = 0;       ///< drafts of a block
  CostSummary cost;                  ///< what was charged
  std::optional<LinearCost> linear;  ///< where its constants are all there is to the cost
  bool calibrated = false;           ///< temperatures were applied to the confidences
  bool has_sglang_table = false;     ///< the cost table could be written for SGLang
  bool has_tensorrt_table = false;   ///< and for TensorRT-LLM
};

/// The files that settings name; they lie beside the files that name them.
inline constexpr const char* kSglangTable = "sglang_cost.json";
inline constexpr const char* kSglangCalibration = "sglang_calibration.json";
inline constexpr const char* kTensorrtTable = "trtllm_cost.json";
inline constexpr const char* kTensorrtCalibration = "trtllm_calibration.json";
inline constexpr const char* kAscendProfile = "vllm_ascend_profile.json";
inline constexpr const char* kDeepspecCalibration = "deepspec_calibration.json";

/// How an engine is told to run a policy.
struct EngineSetting {
  bool speculates = true;   ///< false: start it without the drafter, all else is empty
  std::string flags;        ///< command line, one shell word each
  std::string environment;  ///< NAME=value pairs, one shell word each
  nlohmann::ordered_json options = nlohmann::ordered_json::object();  ///< named settings

  /// All of it on one line, for a person.
  [[nodiscard]] std::string text() const;
};

/// How `engine` runs the policy of `row` as the replay did; nothing where it cannot: another rule,
/// other limits, confidences that it cannot calibrate, costs that it cannot be given, or another
/// width than what was charged. Bounds, off-policy rows and rows without tokens per cost are run by
/// no engine.
[[nodiscard]] std::optional<EngineSetting> engine_setting(Engine engine, const PolicyResult& row,
                                                          const EngineContext& context);

/// True for rows that may be exported at all.
[[nodiscard]] bool is_exportable(const PolicyResult& row);

/// The length of a row of `fixed`; empty for the others.
[[nodiscard]] std::optional<std::int64_t> fixed_length_of(const PolicyResult& row);

}  // namespace dspark
