package main

import (
	"testing"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/config"
)

// Runs of this program play tasks from Parquet files.
func TestTasksOfParquet(t *testing.T) {
	cfg := config.Config{}
	cfg.Environment.Tasks = config.Tasks{File: "../../env/taskset/testdata/chat.parquet", Prompt: "prompt"}
	if set, err := parts.LoadTasks(cfg, surround(&app.Process{}).Columns); err != nil || set.Len() != 5 {
		t.Errorf("%v, %v", set, err)
	}
}
