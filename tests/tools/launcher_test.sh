#!/usr/bin/env bash
# A real launcher starts a real gang, with nothing said by hand: three ranks sum over shared memory.
#   usage: launcher_test.sh openmpi|mpich|torchrun|slurm BUILD_DIR
# Slurm's is played: a node's processes with the variables of one step of srun. torchrun is that of PATH, or of the
# benchmarks' environment in BUILD_DIR.
set -euo pipefail
launcher=$1 build=$2 ranks=3
program=$build/examples/01_all_reduce
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" "${!TORCHELASTIC_@}" "${!GANGWAY_@}"
needs() { command -v "$1" >/dev/null || { echo "skipped: no $1"; exit 77; }; }

srun() { # what srun sets for each process of "srun -n 3" on this machine
  local rank
  for rank in $(seq 0 $((ranks - 1))); do
    env SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_NTASKS=$ranks SLURM_PROCID="$rank" SLURM_LOCALID="$rank" SLURM_NODEID=0 \
      SLURM_NNODES=1 SLURM_STEP_NUM_NODES=1 SLURM_TASKS_PER_NODE=$ranks SLURM_STEP_TASKS_PER_NODE=$ranks \
      SLURM_NODELIST="$(hostname)" SLURM_STEP_NODELIST="$(hostname)" "$@" &
  done
  wait
}

case $launcher in
  openmpi)
    needs mpirun.openmpi
    start=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -n $ranks) ;;
  mpich) needs mpirun.mpich; start=(mpirun.mpich -n $ranks) ;;
  torchrun)
    PATH=$PATH:$build/tests/bench/venv/bin
    needs torchrun
    start=(torchrun --standalone --nproc-per-node $ranks --no-python) ;;
  slurm) start=(srun) ;;
  *) echo "no launcher $launcher" >&2; exit 2 ;;
esac
said=$("${start[@]}" "$program" 2>&1) || { echo "$said"; exit 1; }
for rank in $(seq 0 $((ranks - 1))); do
  grep -q "rank $rank of $ranks: sum 6$" <<<"$said" || { echo "$said"; echo "FAILED: rank $rank has not the sum"; exit 1; }
done
echo "$ranks ranks by $launcher"
