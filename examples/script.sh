# Sourced by quickstart.sh and tests/run.sh: options of a script, and builds that take minutes.

# The comment at the top of a script is its help.
print_help() { # SCRIPT
  sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$1"
}

# Ends the script if an option has no value: need_value "$@" before the option's value is taken.
need_value() { # OPTION [VALUE]...
  if [ $# -lt 2 ]; then echo "$1 needs a value" >&2; exit 2; fi
}

# with_progress LOG COMMAND...: appends to LOG what a build says, and prints how far ninja is every ten
# seconds.
with_progress() {
  local log=$1 reporter status=0; shift
  report_progress "$log" "$BASHPID" &
  reporter=$!
  "$@" >>"$log" 2>&1 || status=$?
  kill "$reporter" 2>/dev/null || true
  wait "$reporter" 2>/dev/null || true
  return $status
}

report_progress() { # LOG PROCESS: until the process has ended
  local start=$SECONDS now last=''
  while kill -0 "$2" 2>/dev/null; do
    sleep 10 >/dev/null 2>&1
    now=$(tail -c 4000 "$1" 2>/dev/null | grep -aoE '^\[[0-9]+/[0-9]+\]' | tail -n 1 || true)
    if [ -n "$now" ] && [ "$now" != "$last" ]; then echo "  $now after $((SECONDS - start)) s"; fi
    last=$now
  done
}
