package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// document is where the results are shown.
const document = "docs/engines-tested.md"

// Marks around the part that is written here.
const (
	generatedFrom = "<!-- generated: engines -->\n"
	generatedTo   = "<!-- end: engines -->\n"
)

// writeDocument shows the results that are there, those of engines that were not run this time as well.
func writeDocument() error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	results, err := readResults(resultsDir)
	if err != nil {
		return err
	}
	shown, err := withResults(string(text), results)
	if err != nil {
		return err
	}
	return os.WriteFile(document, []byte(shown), 0o644)
}

// readResults reads what was found, in the order of the engines.
func readResults(dir string) ([]result, error) {
	var results []result
	for _, e := range engines {
		text, err := os.ReadFile(filepath.Join(dir, e.name+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var r result
		if err := errors.Join(err, json.Unmarshal(text, &r)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// withResults replaces the generated part of the document.
func withResults(text string, results []result) (string, error) {
	i, j := strings.Index(text, generatedFrom), strings.Index(text, generatedTo)
	if i < 0 || j < i {
		return "", fmt.Errorf("%s lacks the lines %q and %q", document, generatedFrom, generatedTo)
	}
	var part strings.Builder
	part.WriteString("\n| engine | versions | checks passed | failed | skipped | date |\n|---|---|---|---|---|---|\n")
	for _, r := range results {
		passed, failed, skipped := 0, 0, 0
		for _, s := range r.Suites {
			passed, failed, skipped = passed+s.Passed, failed+s.Failed, skipped+s.skipped()
		}
		fmt.Fprintf(&part, "| %s | %s | %d | %d | %d | %s |\n", r.Server, versionList(r.Versions), passed, failed, skipped, r.Date)
	}
	for _, r := range results {
		writeResult(&part, r)
	}
	part.WriteString("\n")
	return text[:i+len(generatedFrom)] + part.String() + text[j:], nil
}

// writeResult shows what was found of one server.
func writeResult(w io.Writer, r result) {
	fmt.Fprintf(w, "\n### %s\n\n| tests of | passed | failed | skipped, and why |\n|---|---|---|---|\n", r.Server)
	for _, s := range r.Suites {
		var reasons []string
		for _, k := range s.Skipped {
			reasons = append(reasons, fmt.Sprintf("%d: %s", k.Count, strings.ReplaceAll(k.Reason, "|", "\\|")))
		}
		failed := fmt.Sprint(s.Failed)
		if s.Failed > 0 {
			failed += ": " + strings.Join(s.Failures, ", ")
		}
		fmt.Fprintf(w, "| `%s` | %d | %s | %s |\n", strings.TrimPrefix(s.Package, "./"), s.Passed, failed, strings.Join(reasons, "; "))
	}
	if len(r.Counts) == 0 {
		return
	}
	fmt.Fprint(w, "\n| the conformance suite | |\n|---|---|\n")
	for _, c := range r.Counts {
		fmt.Fprintf(w, "| %s | %d |\n", c.What, c.Count)
	}
}

// versionList names versions, in the order of their names.
func versionList(versions map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		list = append(list, name+" "+versions[name])
	}
	return strings.Join(list, ", ")
}
