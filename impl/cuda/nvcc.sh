# nvcc.sh FILE COMMAND...: runs the command and writes its output (registers, spills and shared memory of each
# kernel) to FILE. If the command fails, the output goes to the terminal as well.
file=$1
shift
"$@" >"$file" 2>&1 || { cat "$file"; exit 1; }
