package sandboxtest

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/sandboxes-tested.md anew")

// docs/sandboxes-tested.md is what the reports say.
func TestDocumentIsCurrent(t *testing.T) {
	const path = "../../../docs/sandboxes-tested.md"
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
		t.Error("docs/sandboxes-tested.md is not what env/sandbox/sandboxtest/results says: go test ./env/sandbox/sandboxtest -run Document -rewrite")
	}
	for _, report := range reports {
		for _, row := range report.Rows {
			if row.Outcome != Contained {
				t.Errorf("%s: %s: %s", report.Driver, row.Attack, row.How)
			}
		}
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
