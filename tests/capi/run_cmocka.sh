#!/bin/sh
# run_cmocka.sh RESULT.xml PROGRAM: runs a CMocka program, writes its results as XML, and prints them if a
# test failed.
rm -f "$1"
mkdir -p "$(dirname "$1")"
CMOCKA_MESSAGE_OUTPUT=xml CMOCKA_XML_FILE=$1 "$2"
status=$?
[ $status -eq 0 ] || cat "$1"
exit $status
