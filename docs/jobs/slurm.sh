#!/bin/bash
#SBATCH --job-name=gan
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=08:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
# Two minutes before its time is over, Slurm asks torchrun to end, and the run saves. Submit the job again to go on.
set -euo pipefail

out=runs/gan  # on a disk that the first node sees
resume=()
if [ -e "$out/run.json" ]; then
  resume=(--resume)
fi
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 4 --max-restarts 1 \
  --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
  -m runtime run gan.yaml --plain --out "$out" "${resume[@]}"
