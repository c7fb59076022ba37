// Grids of finished cells as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/grid.h"

namespace dspark {

/// Adds an empty line and the grid in aligned columns, for a terminal.
void append_aligned(std::string& out, const Grid& grid);

/// Adds an empty line and the grid as a GitHub table.
void append_markdown(std::string& out, const Grid& grid);

/// `text` such that nothing in it changes the layout or becomes a link, markup or HTML.
[[nodiscard]] std::string markdown_text(std::string_view text);

/// `text` as a cell of comma-separated values (RFC 4180): escaped, quoted where it has to be.
[[nodiscard]] std::string csv_text(std::string_view text);

/// Finished cells (csv_text() and numbers) as one line, with its end.
[[nodiscard]] std::string csv_line(const std::vector<std::string>& cells);

}  // namespace dspark
