package sandboxtest

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/reference/attacks.md anew")

// docs/reference/attacks.md is what the reports say.
func TestDocumentIsCurrent(t *testing.T) {
	const path = "../../../docs/reference/attacks.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reports, err := ReadReports("results")
	if err != nil {
		t.Fatal(err)
	}
	want, err := WithReports(string(text), reports)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/reference/attacks.md is not what env/sandbox/sandboxtest/results says: go test ./env/sandbox/sandboxtest -run Document -rewrite")
	}
	for _, report := range reports {
		for _, row := range report.Rows {
			if secure := report.Boundary.Secure(); secure && row.Outcome != Contained || !secure && mustEscape[row.Attack] && row.Outcome != Escaped {
				t.Errorf("%s: %s: %s: %s", report.Driver, row.Attack, row.Outcome, row.How)
			}
		}
	}
}

// mustEscape are attacks that succeed where nothing keeps files, processes and network apart: a suite in which they
// did not would show nothing of the others.
var mustEscape = map[string]bool{"network": true, "host files": true, "host files written": true, "read by a link": true, "write by a link": true,
	"processes": true, "environment": true, "another sandbox": true, "signals": true, "ptrace": true}

// TestEveryDriverIsInTheTable holds the table against the drivers that a document can name.
func TestEveryDriverIsInTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../config/headway.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Properties map[string]*node
		Enum       []string
	}
	var schema node
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	drivers := schema.Properties["sandbox"].Properties["driver"].Enum
	reports, err := ReadReports("results")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, report := range reports {
		shown = append(shown, report.Driver)
	}
	for _, u := range unattacked {
		shown = append(shown, u.driver)
	}
	slices.Sort(drivers)
	slices.Sort(shown)
	if len(drivers) == 0 || !slices.Equal(drivers, shown) {
		t.Errorf("a document can name %v, and the table has %v", drivers, shown)
	}
}

func TestWithReports(t *testing.T) {
	document := "before\n" + generatedFrom + "old\n" + generatedTo + "after\n"
	reports := []Report{
		{Driver: "a", Date: "2026-11-21", Versions: map[string]string{"y": "2", "x": "1"}, Boundary: sandbox.Boundary{Files: true},
			Rows: []Row{{"one", "this | that", Contained, "so"}, {"two", "more", Escaped, "out"}}},
		{Driver: "b", Rows: []Row{{"one", "this | that", Contained, "so"}}},
	}
	text, err := WithReports(document, reports)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "| `a` | x 1, y 2 | 2026-11-21 |", "| files | yes | no |", `| one | this \| that | contained | contained |`, "| two | more | escaped | not tried |", "after\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if again, err := WithReports(text, reports); err != nil || again != text || strings.Contains(text, "old") {
		t.Errorf("written again it is different: %v", err)
	}
	if _, err := WithReports("no marks", reports); err == nil {
		t.Error("a document without marks was written")
	}
}
