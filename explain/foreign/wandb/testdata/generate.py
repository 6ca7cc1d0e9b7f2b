"""Writes run.wandb as the wandb library of this environment does: python generate.py OUT [--big]

Run by hand, once for each version that is checked in beside this file.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_CONSOLE="off", WANDB_DISABLE_GIT="true",
                  WANDB__DISABLE_META="true", WANDB__DISABLE_STATS="true", WANDB_DISABLE_CODE="true",
                  WANDB_X_DISABLE_META="true", WANDB_X_DISABLE_STATS="true", WANDB_HOST="host", WANDB_USERNAME="user",
                  WANDB_PROGRAM="train.py")

if sys.argv[1] != "--here":  # the library's service writes on until the process that uses it has ended
    directory = tempfile.mkdtemp()
    subprocess.run([sys.executable, os.path.abspath(__file__), "--here", *sys.argv[2:]], cwd=directory, check=True)
    shutil.copy(glob.glob(directory + "/wandb/offline-run-*/*.wandb")[0], sys.argv[1])
    sys.exit()

import wandb

directory, big = os.getcwd(), "--big" in sys.argv
run = wandb.init(project="project", id="run1", dir=directory,
                 config={"trainer": {"n_gpus_per_node": 8, "name": "x"}, "lr": 1e-6, "flag": True, "none": None})
for i in range(1, 4):
    run.log({"timing_s/step": 20.5 + i, "count": i, "nested": {"a": i * 2, "b": "text"}, "true": True,
             "nan": float("nan"), "inf": float("inf")}, step=i)
    run.log({"timing_s/param_sync": 0.5}, step=i)
if big:
    run.log({"big": "x" * 70000}, step=4)
run.config.update({"later": 3})
run.log({"count": 5}, step=5)
run.finish()
