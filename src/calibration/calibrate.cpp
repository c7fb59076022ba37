#include "calibration/calibrate.h"

#include <fmt/format.h>

#include <cstddef>

#include "calibration/holdout.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

struct Selection {
  std::optional<std::string> domain;
  std::vector<bool> includes;  // [inputs]
};

std::vector<Selection> selections_of(const CalibrationSamples& samples) {
  const std::vector<SampleInput>& inputs = samples.inputs();
  std::vector<Selection> out = {{std::nullopt, std::vector<bool>(inputs.size(), true)}};
  const std::vector<std::string> domains = samples.domains();
  if (domains.size() < 2) return out;
  for (const std::string& domain : domains) {
    out.push_back({domain, {}});
    for (const SampleInput& input : inputs) out.back().includes.push_back(input.domain == domain);
  }
  return out;
}

void judge(const CalibrationSamples& samples, SamplePart part, CalibrationReport& report) {
  const std::vector<Selection> selections = selections_of(samples);
  const auto positions = static_cast<std::size_t>(samples.block_size());
  const std::size_t first = report.positions.size();
  report.positions.resize(first + selections.size() * positions);
  PositionWalk before(samples, part), after(samples, part);
  for (std::size_t k = 0; k < positions; ++k) {
    const double temperature = report.temperatures[k].temperature;
    for (std::size_t i = 0; i < selections.size(); ++i) {
      const auto judged = [&](const PositionWalk& walk, double t) {
        return reliability_of(walk.claims(), t, report.options.rule.bins, selections[i].includes);
      };
      report.positions[first + i * positions + k] = {.part = part,
                                                     .domain = selections[i].domain,
                                                     .position = static_cast<std::int32_t>(k) + 1,
                                                     .before = judged(before, 1.0),
                                                     .after = judged(after, temperature)};
    }
    before.advance(1.0);
    after.advance(temperature);
  }
}

MeanError mean_error(const CalibrationReport& report, SamplePart part) {
  double before = 0, after = 0, count = 0;
  for (const JudgedPosition& at : report.positions) {
    if (at.part != part || at.domain || !at.before.ece) continue;
    before += *at.before.ece;
    after += *at.after.ece;
    count += 1;
  }
  if (count == 0) return {};
  return {before / count, after / count};
}

void add_notes(CalibrationReport& report) {
  for (const SampleInput& input : report.inputs) {
    if (input.held_out > 0) continue;
    report.notes.push_back(
        input.sequences == 0
            ? fmt::format("{}: it has no block to calibrate on", input.file)
            : fmt::format("{}: with one sequence nothing of it can be held out; it is fitted on "
                          "and not judged",
                          input.file));
  }
  if (report.held_out == 0) {
    report.notes.emplace_back("nothing is held out, so nothing is judged: record more sequences");
  }
  for (std::size_t k = 0; k < report.temperatures.size(); ++k) {
    const FittedTemperature& fitted = report.temperatures[k];
    if (fitted.blocks == 0) {
      report.notes.push_back(
          fmt::format("position {}: nothing to fit on, so its temperature is 1", k + 1));
    } else if (fitted.at_edge) {
      report.notes.push_back(fmt::format(
          "position {}: {} is an end of the grid, and the best temperature may lie outside", k + 1,
          shortest(fitted.temperature)));
    }
  }
  const MeanError& error = report.held_out_error;
  if (error.after && !(*error.after < *error.before)) {
    report.notes.push_back(fmt::format(
        "the mean calibration error over positions does not fall on what was held out: {:.4f} "
        "before, {:.4f} after; do not deploy these temperatures, record more text",
        *error.before, *error.after));
  }
}

}  // namespace

CalibrationReport calibrate(CalibrationSamples& samples, const CalibrateOptions& options) {
  if (samples.blocks().empty()) {
    throw trace_error("", "there is no block to calibrate on", "record more text");
  }
  hold_out(samples, options.holdout, options.seed);
  CalibrationReport report;
  report.labels = samples.labels();
  report.options = options;
  report.inputs = samples.inputs();
  report.sequences = static_cast<std::int64_t>(samples.sequences().size());
  for (const SampleInput& input : report.inputs) report.held_out += input.held_out;
  for (const SampleBlock& block : samples.blocks()) {
    report.fitted_blocks += !samples.sequences()[static_cast<std::size_t>(block.sequence)].held_out;
  }
  report.temperatures = fit_temperatures(samples, options.rule, options.threads);
  if (report.held_out > 0) judge(samples, SamplePart::held_out, report);
  judge(samples, SamplePart::fit, report);
  report.held_out_error = mean_error(report, SamplePart::held_out);
  report.fit_error = mean_error(report, SamplePart::fit);
  add_notes(report);
  return report;
}

bool meets(const CalibrationReport& report, double most) {
  return report.held_out_error.after && *report.held_out_error.after <= most;
}

}  // namespace dspark
