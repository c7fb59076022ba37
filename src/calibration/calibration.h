// Calibration files of the engines: one temperature per draft position.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dspark {

/// Whose file it is. A file is recognised by its keys.
enum class CalibrationFormat : std::uint8_t {
  sglang,    ///< `temperatures`; dataset, num_samples, ece_before, ece_after
  trtllm,    ///< `sts_temperatures` alone; with `temperatures`, which it reads too, it is SGLang's
  deepspec,  ///< `temperatures` with block_size, num_bins, grid, num_records, sources,
             ///< cumulative_ece_before or cumulative_ece_after
};
[[nodiscard]] const char* format_name(CalibrationFormat format);

/// DeepSpec's `grid`.
struct CalibrationGrid {
  double min = 0, max = 0;
  std::int64_t size = 0;
  bool operator==(const CalibrationGrid&) const = default;
};

/// What a calibration file says. Fields that its format does not have, or that are not in the file,
/// are empty.
struct Calibration {
  CalibrationFormat format = CalibrationFormat::sglang;
  std::string source;                ///< the file, for messages
  std::vector<double> temperatures;  ///< [P]; c_k = sigmoid(logit_k / temperatures[k - 1])

  std::string dataset;                        ///< sglang
  std::optional<std::int64_t> samples;        ///< num_samples (sglang), num_records (deepspec)
  std::vector<double> ece_before, ece_after;  ///< [P] or empty; cumulative_ece_* of deepspec
  std::optional<std::int64_t> bins;           ///< deepspec
  std::optional<CalibrationGrid> grid;        ///< deepspec
  std::vector<std::string> origins;           ///< `sources` of deepspec
};

/// Reads a calibration file ("-": standard input) of any of the formats; of at most 1 MiB. Keys it
/// does not know are left alone, as the engines do. Throws Error(policy), naming file and key,
/// where it cannot be read, is no JSON object, has a key twice, has no temperatures or more than
/// kMaxCalibratedSlots, one that is not a finite number above 0, a list that is not as long as the
/// temperatures, a value of the wrong type, or temperatures of two kinds that differ; and where
/// `block_size` is known and the number of temperatures is another.
[[nodiscard]] Calibration read_calibration(const std::string& file,
                                           std::optional<std::int32_t> block_size = std::nullopt);

/// The same from the text of a file; `file` is for messages.
[[nodiscard]] Calibration parse_calibration(const std::string& text, const std::string& file,
                                            std::optional<std::int32_t> block_size = std::nullopt);

/// The file in its own format: JSON that ends in a newline. Numbers read back as the same doubles.
[[nodiscard]] std::string calibration_text(const Calibration& calibration);

}  // namespace dspark
