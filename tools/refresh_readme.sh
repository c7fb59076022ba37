#!/usr/bin/env bash
# tools/refresh_readme.sh [--no-install]
#
# Runs the commands of README.md's console blocks again and puts what they print below them. Lines with "..." stand for text
# that differs from run to run and are kept. The same program is the test that README.md tells the truth (tests/cli).
#
# Environment: BUILD_DIR (default: build).
set -euo pipefail
# shellcheck source=tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

prepare "$0" "$@"
configure
build readme --target dspark-replay cli_readme_test
DSPARK_REFRESH_README=1 "$BUILD_DIR/tests/cli_readme_test"
