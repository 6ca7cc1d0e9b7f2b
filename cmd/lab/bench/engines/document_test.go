package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// docs/engines-tested.md is what the results say.
func TestDocumentIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../../../" + document)
	if err != nil {
		t.Fatal(err)
	}
	results, err := readResults("results")
	if err != nil {
		t.Fatal(err)
	}
	want, err := withResults(string(text), results)
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Error("docs/engines-tested.md is not what cmd/lab/bench/engines/results says: go run ./cmd/lab/bench/engines -document")
	}
}

// What go test says is counted by the innermost tests, with the reasons of what was skipped.
func TestFollow(t *testing.T) {
	said := []string{
		`{"Action":"run","Test":"TestA"}`,
		`{"Action":"output","Test":"TestA/one","Output":"    a_test.go:7: progress: half way\n"}`,
		`{"Action":"pass","Test":"TestA/one"}`,
		`{"Action":"output","Test":"TestA/two","Output":"    a_test.go:9: no such road\n"}`,
		`{"Action":"output","Test":"TestA/two","Output":"--- SKIP: TestA/two (0.00s)\n"}`,
		`{"Action":"skip","Test":"TestA/two"}`,
		`not JSON`,
		`{"Action":"pass","Test":"TestA"}`,
		`{"Action":"output","Test":"TestB","Output":"    b_test.go:3: no such road\n"}`,
		`{"Action":"skip","Test":"TestB"}`,
		`{"Action":"skip","Test":"TestC"}`,
		`{"Action":"run","Test":"TestD/inner"}`,
		`{"Action":"fail","Test":"TestD/inner"}`,
		`{"Action":"fail","Test":"TestD"}`,
		`{"Action":"fail"}`,
	}
	got := (&harness{}).follow("./x", strings.NewReader(strings.Join(said, "\n")))
	want := suite{Package: "./x", Passed: 1, Failed: 1, Failures: []string{"TestD/inner"}, Skipped: []skip{{"no such road", 2}, {"no reason given", 1}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
	if r := (result{Suites: []suite{got}}); r.failure() == nil || !strings.Contains(r.failure().Error(), "TestD") {
		t.Errorf("failure %v", r.failure())
	}
	broken := (&harness{}).follow("./y", strings.NewReader(`{"Action":"fail"}`))
	if broken.Failed != 1 {
		t.Errorf("a package that does not build: %+v", broken)
	}
}

func TestWithResults(t *testing.T) {
	document := "before\n" + generatedFrom + "old\n" + generatedTo + "after\n"
	results := []result{{Engine: "e", Server: "a server", Date: "2026-11-21", Versions: map[string]string{"b": "2", "a": "1"},
		Suites: []suite{{Package: "./engine/e", Passed: 3, Skipped: []skip{{"it | cannot", 2}}}, {Package: "./cmd/lab/bench/engines", Passed: 4, Failed: 1, Failures: []string{"TestX"}}},
		Counts: []count{{"tokens compared", 12345}}}}
	text, err := withResults(document, results)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "| a server | a 1, b 2 | 7 | 1 | 2 | 2026-11-21 |", "| `engine/e` | 3 | 0 | 2: it \\| cannot |", "1: TestX", "| tokens compared | 12345 |", "after\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "old") {
		t.Error("the old part is still there")
	}
	if again, err := withResults(text, results); err != nil || again != text {
		t.Errorf("written again it is different: %v", err)
	}
	if _, err := withResults("no marks", nil); err == nil {
		t.Error("a document without marks was written")
	}
}
