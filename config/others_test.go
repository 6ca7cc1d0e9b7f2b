package config

import (
	"slices"
	"strings"
	"testing"
)

// A name of another framework is refused with ours, which exists; none is a key of ours.
func TestOthersNamesAreSuggested(t *testing.T) {
	for theirs, own := range ownName {
		_, err := Load("", theirs+"=1")
		if said := errorText(err); !strings.Contains(said, "did you mean "+own+"?") {
			t.Errorf("--set %s=1, where %s is meant: %s", theirs, own, said)
		}
		if values, _ := pathsTo(own[strings.LastIndexByte(own, '.')+1:], "", document); !slices.Contains(values, own) {
			t.Errorf("%s is said for %s, and is no key", own, theirs)
		}
	}
	if _, err := Parse("run.yaml", []byte("trainer: {lr: 0.1}\nbatch_size: 8\n")); !strings.Contains(errorText(err), "did you mean trainer.learning_rate?") || !strings.Contains(errorText(err), "did you mean train.batch?") {
		t.Errorf("in a document: %s", errorText(err))
	}
}
