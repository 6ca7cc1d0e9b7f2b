package main

import (
	"os"

	"github.com/headway-rl/headway/internal/failure"
)

// createParquet makes the file.
func createParquet(path string, g *grid, mark string, accept bool) (*parquetRows, error) {
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
	return newParquet(path, file, g, parquetRequest{mark: mark, accept: accept, version: currentBuild().Version}), nil
}
