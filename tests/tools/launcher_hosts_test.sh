#!/usr/bin/env bash
# A launcher starts a gang over two hosts, which are network namespaces of this machine: two ranks on each
# sum. torchrun also starts them again, because a rank of its first attempt dies.
#   usage: launcher_hosts_test.sh torchrun|slurm BUILD_DIR
# Slurm's is played: the processes of two nodes with the variables of one step of srun. torchrun is that of
# PATH, or of the benchmarks' environment in BUILD_DIR.
set -euo pipefail
launcher=$1 build=$2 prefix=gwl$$h hosts=$(dirname "$(realpath "$0")")/../gang/mpi/hosts.sh
program=$build/examples/01_all_reduce
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" "${!TORCHELASTIC_@}" "${!GANGWAY_@}"
skip() { echo "skipped: $1"; exit 77; }

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
PATH=$PATH:$build/tests/bench/venv/bin
[ "$launcher" != torchrun ] || command -v torchrun >/dev/null || skip "no torchrun"
folder=$(mktemp -d)
trap 'bash "$hosts" down "$prefix" || true; rm -rf "$folder"' EXIT
bash "$hosts" up 2 "$prefix" 2>"$folder/why" || skip "no network namespaces here: $(cat "$folder/why")"
export GANGWAY_SECRET_FILE=$folder/secret
(umask 077; head -c 32 /dev/urandom >"$GANGWAY_SECRET_FILE")
on() { local host=$1; shift; timeout 200 bash "$hosts" agent "$prefix$host" "$@" >"$folder/said.$host.${1##*/}.$BASHPID" 2>&1; }

started=()
case $launcher in
  torchrun) # each host starts its agent, and the first one's has the rendezvous; one rank of the first attempt dies
    echo "mkdir '$folder/died' 2>/dev/null && { sleep 1; kill -9 \$\$; }; exec '$program'" >"$folder/rank"
    for host in 1 2; do
      on $host torchrun --nnodes 2 --nproc-per-node 2 --max-restarts 2 --rdzv-backend c10d --rdzv-endpoint "${prefix}1:29400" \
        --rdzv-id job --no-python bash "$folder/rank" & started+=($!)
    done ;;
  slurm) # what srun sets for each process of "srun -N 2 -n 4", and the port that a batch script must choose
    export MASTER_PORT=29500
    for rank in 0 1 2 3; do
      on $((rank / 2 + 1)) env SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_PROCID=$rank SLURM_LOCALID=$((rank % 2)) \
        SLURM_NODEID=$((rank / 2)) SLURM_NNODES=2 SLURM_STEP_NUM_NODES=2 "SLURM_STEP_TASKS_PER_NODE='2(x2)'" \
        "SLURM_STEP_NODELIST='${prefix}[1-2]'" "$program" & started+=($!)
    done ;;
  *) echo "no launcher $launcher" >&2; exit 2 ;;
esac
failed=0
for child in "${started[@]}"; do wait "$child" || failed=1; done
said=$(cat "$folder"/said.*)
for rank in 0 1 2 3; do grep -q "rank $rank of 4: sum 10$" <<<"$said" || failed=1; done
[ $failed = 0 ] || { echo "$said"; echo "FAILED: not every rank has the sum"; exit 1; }
echo "4 ranks on 2 hosts by $launcher"
