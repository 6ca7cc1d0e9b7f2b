package doctor

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/reference/doctor.md anew")

// kinds lists everything that can be found.
func kinds() []Kind {
	var kinds []Kind
	for _, c := range checks() {
		kinds = append(kinds, c.kind)
	}
	return append(kinds, configWarning)
}

// docs/reference/doctor.md lists every finding and every scenario, from the code.
func TestDoctorDocumentIsCurrent(t *testing.T) {
	const path = "../../docs/reference/doctor.md"
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, part := range []struct{ name, table string }{{"findings", findingsTable()}, {"scenarios", scenariosTable()}} {
		begin, end := "<!-- generated: "+part.name+" -->\n", "<!-- end: "+part.name+" -->\n"
		head, rest, ok := strings.Cut(text, begin)
		_, tail, found := strings.Cut(rest, end)
		if !ok || !found {
			t.Fatalf("%s lacks the lines %q and %q", path, begin, end)
		}
		text = head + begin + part.table + end + tail
	}
	if text == string(raw) {
		return
	}
	if !*rewrite {
		t.Fatalf("%s does not list what doctor finds: go test ./predict/doctor -run Document -rewrite", path)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func findingsTable() string {
	var table strings.Builder
	table.WriteString("| finding | severity | about | found when | known by |\n|---|---|---|---|---|\n")
	for _, k := range kinds() {
		severities := make([]string, len(k.Severities))
		for i, s := range k.Severities {
			severities[i] = string(s)
		}
		table.WriteString("| `" + k.Code + "` | " + strings.Join(severities, ", ") + " | `" + strings.Join(k.Keys, "`, `") + "` | " + k.When + " | " + k.Known + " |\n")
	}
	return table.String()
}

func scenariosTable() string {
	var table strings.Builder
	table.WriteString("| known as | what happened | found as |\n|---|---|---|\n")
	for _, s := range scenarios {
		name, source := s.Name, ""
		if strings.HasPrefix(s.Source, "https://") {
			name = "[" + s.Name + "](" + s.Source + ")"
		} else {
			source = " (" + s.Source + ")"
		}
		table.WriteString("| " + name + " | " + s.What + source + " | `" + strings.Join(s.Codes, "`, `") + "` |\n")
	}
	return table.String()
}
