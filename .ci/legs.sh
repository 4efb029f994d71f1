# Sourced by run and full: legs of a CI run, one after the other, each counted; a red leg stays red.
passed=0 failed=0 skipped=0 ran=() red=()

# leg NAME COMMAND...: counts what the command's last "N passed, N failed, N skipped" says, else the command as one.
leg() {
  local name=$1 log started=$SECONDS status p f s
  shift
  log=$(mktemp)
  echo "=== $name"
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  read -r p f s < <(sed -n 's/^\([0-9]\+\) passed, \([0-9]\+\) failed, \([0-9]\+\) skipped.*/\1 \2 \3/p' "$log" | tail -n 1)
  mapfile -t -O ${#red[@]} red < <(grep '^failed: ' "$log")
  rm -f "$log"
  [ -n "${s:-}" ] || { p=$((status == 0)) f=0 s=0; }
  [ "$status" -eq 0 ] || [ "$f" -gt 0 ] || f=1
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  ran+=("$(printf '%-44s %5d passed %4d failed %4d skipped %6d s' "$name" "$p" "$f" "$s" $((SECONDS - started)))")
}

# What failed, what ran, and the sum as the last line; the status of the whole.
summary() {
  # Again, since a long log is read from its end.
  if [ ${#red[@]} -gt 0 ]; then printf '%s\n' "=== what failed" "${red[@]}"; fi
  echo "=== what ran"
  printf '%s\n' "${ran[@]}"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
