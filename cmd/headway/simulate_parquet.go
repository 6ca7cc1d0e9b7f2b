package main

import (
	"os"

	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/predict/experiment"
)

// createParquet makes the file.
func createParquet(path string, g *experiment.Grid, mark string, accept bool) (*experiment.Parquet, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, failure.Usage("name a file that does not exist yet", "--out %s: the file exists, and nothing is overwritten", path)
	}
	if _, err := os.Lstat(path + ".part"); err == nil {
		return nil, failure.Usage("delete "+path+".part if no run is writing it", "--out %s: there is %s.part, of a run that was interrupted or goes on; it holds nothing that can be read", path, path)
	}
	file, err := createFile("--out", path+".part")
	if err != nil {
		return nil, err
	}
	return experiment.NewParquet(path, file, g, experiment.ParquetOptions{Mark: mark, Accept: accept, Version: command.CurrentBuild().Version}), nil
}
