# nvcc.sh FILE COMMAND...: runs the command. What it prints (registers, spills, shared memory of each kernel) goes to FILE,
# and to the terminal only if the command fails.
file=$1
shift
"$@" >"$file" 2>&1 || { cat "$file"; exit 1; }
