// The printers, one file each; render() chooses.
#pragma once

#include <string>

#include "replay/result.h"
#include "report/render.h"

namespace dspark {

/// Aligned columns for a terminal: per trace and verification the positions, then the policies,
/// best first.
[[nodiscard]] std::string render_table(const ReplayResult& result, const RenderOptions& options);
/// The same as GitHub tables.
[[nodiscard]] std::string render_markdown(const ReplayResult& result, const RenderOptions& options);
/// The policies as comma-separated values (RFC 4180 quoting), one header line.
[[nodiscard]] std::string render_csv(const ReplayResult& result);
/// One document, one row per line.
[[nodiscard]] std::string render_json(const ReplayResult& result);
/// One object per line, told apart by its "type": header, trace, position, result, run.
[[nodiscard]] std::string render_jsonl(const ReplayResult& result);

}  // namespace dspark
