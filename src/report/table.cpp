// The result as aligned columns for a terminal.
#include <algorithm>
#include <string>
#include <vector>

#include "report/formats.h"
#include "report/grid.h"
#include "report/layout.h"

namespace dspark {
namespace {

// Code points, which is the width of the text in a terminal for what names and numbers are made of.
std::size_t text_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

void append_padded(std::string& line, const std::string& text, std::size_t width, bool to_right) {
  const std::string space(width - std::min(width, text_width(text)), ' ');
  line += to_right ? space + text : text + space;
}

}  // namespace

void append_aligned_grid(std::string& out, const Grid& grid) {
  std::vector<std::size_t> widths;
  for (const GridColumn& column : grid.columns) {
    std::size_t width = text_width(column.header);
    for (const std::string& cell : column.cells) width = std::max(width, text_width(cell));
    widths.push_back(width);
  }
  const auto append_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t c = 0; c < grid.columns.size(); ++c) {
      if (c > 0) line += "  ";
      append_padded(line, cell_of(grid.columns[c]), widths[c], grid.columns[c].is_number);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  out += '\n';
  append_line([](const GridColumn& column) { return column.header; });
  for (std::size_t row = 0; row < grid.rows(); ++row) {
    append_line([row](const GridColumn& column) { return column.cells[row]; });
  }
}

std::string render_table(const ReplayResult& result, const RenderOptions& options) {
  std::string out;
  for (const std::string& line : preamble(result)) out += line + '\n';
  for (const Section& section : make_sections(result, options)) {
    out += '\n' + section.title + '\n';
    if (!section.about.empty()) out += section.about + '\n';
    for (const Grid* grid : grids_of(section)) append_aligned_grid(out, *grid);
  }
  return out;
}

}  // namespace dspark
