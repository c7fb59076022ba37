// The result as GitHub Markdown, for issues and pull requests.
#include <string>
#include <string_view>

#include "report/formats.h"
#include "report/grid.h"
#include "report/layout.h"

namespace dspark {

std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*[]|<>").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

void append_markdown_grid(std::string& out, const Grid& grid) {
  out += "\n|";
  for (const GridColumn& column : grid.columns) out += ' ' + markdown_text(column.header) + " |";
  out += "\n|";
  for (const GridColumn& column : grid.columns) out += column.is_number ? " ---: |" : " --- |";
  out += '\n';
  for (std::size_t row = 0; row < grid.rows(); ++row) {
    out += '|';
    for (const GridColumn& column : grid.columns) {
      const std::string cell = markdown_text(column.cells[row]);
      out += cell.empty() ? " |" : ' ' + cell + " |";
    }
    out += '\n';
  }
}

std::string render_markdown(const ReplayResult& result, const RenderOptions& options) {
  std::string out;
  for (const std::string& line : preamble(result)) {
    if (!out.empty()) out += "  \n";  // two spaces: a line break
    out += markdown_text(line);
  }
  out += '\n';
  for (const Section& section : make_sections(result, options)) {
    out += "\n### " + markdown_text(section.title) + '\n';
    if (!section.about.empty()) out += '\n' + markdown_text(section.about) + '\n';
    for (const Grid* grid : grids_of(section)) append_markdown_grid(out, *grid);
  }
  return out;
}

}  // namespace dspark
