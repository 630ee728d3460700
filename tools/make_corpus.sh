#!/usr/bin/env bash
# Writes the King James Bible (Debian package bible-kjv-text) to a text file, for tools/quickstart.sh.
#   tools/make_corpus.sh [OUT]            default: corpus/kjv.txt
# One paragraph for each chapter, an empty line between them; the verse numbers ("Ge1:1 ") are left out.
set -euo pipefail
out=$(realpath -m "${1:-$(dirname "${BASH_SOURCE[0]}")/../corpus/kjv.txt}")
# shellcheck source=tools/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
readonly LEAST_BYTES=4000000

command -v bible >/dev/null || die "the command 'bible' is missing: run tools/setup.sh --with-corpus"
mkdir -p "$(dirname "$out")"
trap 'rm -f "$out.part"' EXIT
bible -f gen1:1-rev22:21 | awk '
  match($0, /^[0-9]?[A-Za-z]+[0-9]+:[0-9]+ /) {
    chapter = substr($0, 1, index($0, ":") - 1)
    verse = substr($0, RLENGTH + 1)
    separator = NR == 1 ? "" : chapter == last ? " " : "\n\n"
    printf "%s%s", separator, verse
    last = chapter
    next
  }
  { print "unexpected line: " $0 >"/dev/stderr"; bad = 1; exit 1 }
  END { if (!bad) print "" }
' >"$out.part"

bytes=$(stat -c %s "$out.part")
((bytes >= LEAST_BYTES)) || die "the text has only $bytes bytes, at least $LEAST_BYTES were expected"
mv "$out.part" "$out"
echo "$out: $bytes bytes of English text"
