#!/bin/sh
# Kernel objects must define no function that the linker could merge with a copy compiled for another instruction set:
# every weak function lies in a namespace of its own. Arguments: the objects.
found=$(nm -C --defined-only "$@" | grep ' W ' | grep -vE 'gangway::cpu::(portable|avx2|avx512)::')
[ "$#" -gt 0 ] || { echo "no objects given"; exit 1; }
[ -z "$found" ] || { echo "shared between instruction sets:"; echo "$found"; exit 1; }
