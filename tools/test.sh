#!/usr/bin/env bash
# tools/test.sh [--no-install]
#
# Builds everything and runs every test. Tests that need a GPU are shown as skipped where there is none.
#
#   --no-install   install nothing; everything needed is there
#
# Environment: BUILD_DIR (default: build), CI (set: warnings are errors).
set -euo pipefail
# shellcheck source=tools/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

prepare "$0" "$@"
configure
build build-tests
ctest --test-dir "$BUILD_DIR" --output-on-failure --no-tests=error --parallel "$(nproc)"
