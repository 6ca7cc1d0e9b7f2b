package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A key that its section does not have is guessed to be the value of that name in a section that is spelled nearly so,
// before a key of its own section that is, before what has the name anywhere.
func TestKeysOfOtherSectionsAreSuggested(t *testing.T) {
	for override, want := range map[string]string{
		"train.steps=120":        "trainer.steps",
		"train.group_size=8":     "rollout.group_size",
		"rollout.batch=8":        "train.batch",
		"control.limit=3":        "control.limits", // of more than one limit elsewhere
		"sync.time=3":            "modelled.sync.time_s",
		"train.bach=8":           "train.batch",
		"rollout.control=1":      "control",
		"queue.capacity.least=1": "",
		"rollout.lengt.kind=x":   "modelled.length.kind",
	} {
		key, value, _ := strings.Cut(override, "=")
		_, err := Load("", override)
		if said := errorText(err); want != "" && !strings.Contains(said, "did you mean "+want+"?") || want == "" && strings.Contains(said, "did you mean") {
			t.Errorf("--set %s, where %q is meant: %s", override, want, said)
		}
		section, last, _ := strings.Cut(key, ".")
		if strings.Contains(last, ".") {
			continue
		}
		want = strings.TrimPrefix(want, section+".") // a document's message names the section before
		if _, err = Parse("run.yaml", []byte(section+": {"+last+": "+value+"}\n")); !strings.Contains(errorText(err), "did you mean "+want+"?") {
			t.Errorf("%s in a document, where %q is meant: %s", key, want, errorText(err))
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// A document whose keys are refused says which of its values are, too, whether it is read alone or under overrides.
func TestReadSaysAllThatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "neg.yaml")
	read := func(text string) (Config, error) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return Read(path)
	}
	const values = "train: {batch: -5}\nqueue: {factor: -1}\n"
	_, err := read(values + "steps: -3\n")
	_, loaded := Load(path)
	if said := errorText(err); said != errorText(loaded) || strings.Count(said, "\n") != 2 ||
		!strings.Contains(said, path+":1:16: train.batch: -5") || !strings.Contains(said, path+":2:17: queue.factor: -1") || !strings.Contains(said, "steps: -3 is not a section") {
		t.Errorf("read:\n%s\nloaded:\n%s", said, errorText(loaded))
	}
	raw, err := read(values)
	if err != nil {
		t.Fatalf("overrides may mend values: %v", err)
	}
	_, err = raw.Set("train.batch=8", "train.steps=120")
	if said := errorText(err); strings.Contains(said, "train.batch") || !strings.Contains(said, "queue.factor: -1") || !strings.Contains(said, "did you mean trainer.steps?") {
		t.Errorf("under overrides:\n%s", said)
	}
	if _, err = raw.Set("train.batch=8"); err != nil {
		t.Errorf("a mended value: %v", err)
	}
}
