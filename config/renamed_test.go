package config

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

const renamedFile = "../docs/reference/renamed.md"

// TestRenamedPageIsCurrent prints the table for people; with -rewrite it writes the file.
func TestRenamedPageIsCurrent(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Names that changed\n\n" +
		"Generated from the table of package `config` (`make generate`). A document with an old key is an error that names the new one. " +
		"`headway config --migrate FILE` prints the document with its present keys and keeps its comments. " +
		"Runs and traces of earlier versions need nothing: the program reads their documents by this table.\n\n" +
		"| kind | before | now | why |\n|---|---|---|---|\n")
	for _, r := range RenamedNames() {
		fmt.Fprintf(&page, "| %s | `%s` | `%s` | %s |\n", r.Kind, r.Old, r.New, r.Why)
	}
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(renamedFile, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(renamedFile); err != nil || string(have) != page.String() {
		t.Errorf("%s is not what the table says (%v): go test ./config -run Renamed -rewrite", renamedFile, err)
	}
}

// A new key exists and an old one does not, no name changed twice, and both hold values of one type: nothing is converted.
func TestRenamedKeysLeadToKeys(t *testing.T) {
	old := map[string]bool{}
	for _, r := range renamed {
		old[r.Old] = true
	}
	for _, r := range renamed {
		if r.Kind != kindKey {
			continue
		}
		if r.Why == "" || old[r.New] {
			t.Errorf("%s has no reason, or %s has a newer name", r.Old, r.New)
		}
		element := strings.NewReplacer("[]", ".0")
		if _, _, err := locate(element.Replace(r.New), reflect.ValueOf(&Config{}).Elem()); err != nil {
			t.Errorf("%s is no key: %v", r.New, err)
		}
		_, _, err := locate(element.Replace(r.Old), reflect.ValueOf(&Config{}).Elem())
		if err == nil || err.Problem != renamedProblem(element.Replace(r.New)) {
			t.Errorf("%s: %v", r.Old, err)
		}
	}
}
