// Grids and cells as texts, for every printer of the tool.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/grid.h"

namespace dspark {

/// Appends an empty line and the grid as aligned columns for a terminal.
void append_aligned_grid(std::string& out, const Grid& grid);

/// Appends an empty line and the grid as a GitHub table.
void append_markdown_grid(std::string& out, const Grid& grid);
/// The text such that nothing in it changes the layout or becomes a link, markup or HTML.
[[nodiscard]] std::string markdown_text(std::string_view text);

/// A CSV cell (RFC 4180 quoting); control characters are escaped.
[[nodiscard]] std::string csv_text(std::string_view text);
/// Empty where there is no finite number.
[[nodiscard]] std::string csv_number(const std::optional<double>& value);
/// One line with its newline, of finished cells.
[[nodiscard]] std::string csv_line(const std::vector<std::string>& cells);

}  // namespace dspark
