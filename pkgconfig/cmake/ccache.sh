#!/bin/sh
# Runs the compiler through ccache, together with precompiled headers. CMake calls this as the launcher of
# every compiler.
#   usage: ccache.sh SOURCE_FOLDER CCACHE COMPILER ARGUMENT...
# ccache identifies a precompiled header by its bytes, which differ from one build folder to the next. Where a
# file *.sum lies beside the header, ccache takes that file instead, so this script writes the checksum of the
# preprocessed text.
source=$1 ccache=$2
shift 2
for word; do
  case $word in
    *.gch | *.pch) [ "$before" != -o ] || precompiled=$word ;;
  esac
  before=$word
done
# The preprocessed text of the header: the compiler's arguments without -o FILE.
preprocess() {
  before=''
  for word; do
    shift
    if [ "$word" != -o ] && [ "$before" != -o ]; then set -- "$@" "$word"; fi
    before=$word
  done
  "$@" -E -P
}

if [ -n "$precompiled" ]; then
  rm -f "$precompiled" # it would be named in place of the text
  preprocess "$@" | cksum >"$precompiled.sum"
  exec "$@"
fi
# Paths below the source folder count as relative, so that a clone elsewhere finds the same entries.
export CCACHE_BASEDIR="$source" CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros
exec "$ccache" "$@"
