package main

import (
	"errors"
	"os"

	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/observe/report"
)

// writeDiagnosisPage writes a diagnosis as a page.
func writeDiagnosisPage(path string, r diagnosis.Report) (err error) {
	file, err := createFile("--html", path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeOrRemove(file, err)) }()
	return report.DocumentHTML(file, diagnosis.Page(r))
}

// closeOrRemove closes a file that was written, and removes one that was not.
func closeOrRemove(file *os.File, failed error) error {
	err := file.Close()
	if failed != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}
