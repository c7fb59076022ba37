// The result as GitHub Markdown, for issues and pull requests.
#include <cctype>
#include <string>
#include <string_view>

#include "report/formats.h"
#include "report/grid.h"

namespace dspark {
namespace {

// Whether the character at `i` could change the layout, or become a link, markup or HTML.
bool is_markup(std::string_view text, std::size_t i) {
  const auto is_word = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0);
  };
  switch (text[i]) {
    case '_':
      return i == 0 || !is_word(i - 1) || !is_word(i + 1);  // else a part of a word
    case ':':
      return text.substr(i + 1).starts_with("//");
    case '#':
      return is_word(i + 1);
    case '.':
      return text.substr(0, i).ends_with("www");
    default:
      return std::string_view("\\`*~&@[]|<>").find(text[i]) != std::string_view::npos;
  }
}

std::string markdown_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_markup(text, i)) out += '\\';
    out += text[i];
  }
  return out;
}

void append_grid(std::string& out, const Grid& grid) {
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

}  // namespace

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
    for (const Grid* grid : grids_of(section)) append_grid(out, *grid);
  }
  return out;
}

}  // namespace dspark
